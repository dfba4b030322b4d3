"""Waiting for a condition instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], object] | Callable[[], Awaitable[object]], what: str, timeout: float = 30
) -> None:
    """Return once `condition()` is true; it may be a plain or an async function.

    Fails with `what` was waited for, and for how long, after `timeout` seconds. Of a time in which this process stood
    still, as on a machine that is busy with other things, no more than a second counts.
    """
    left = timeout
    while True:
        looked = time.monotonic()
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return
        if left < 0:
            raise AssertionError(f"waited {timeout} s in vain until {what}")
        # What is waited for needs the processor that looks would take, such as those through a ledger that grows.
        await asyncio.sleep(max(0.005, min(0.1, time.monotonic() - looked)))
        left -= min(1.0, time.monotonic() - looked)
