"""Waiting for a condition instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], object] | Callable[[], Awaitable[object]], description: str, timeout: float = 30
) -> None:
    """Return once `condition()` is true; it may be a plain or an async function.

    Fails after `timeout` seconds, with the `description` of the condition. While this process stands still, as on a
    machine that is busy with other things, at most one second counts.
    """
    remaining_s = timeout
    while True:
        checked = time.monotonic()
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return
        if remaining_s < 0:
            raise AssertionError(f"waited {timeout} s in vain until {description}")
        # The awaited work needs the processor time that checks would take, such as those that read a growing ledger.
        await asyncio.sleep(max(0.005, min(0.1, time.monotonic() - checked)))
        remaining_s -= min(1.0, time.monotonic() - checked)
