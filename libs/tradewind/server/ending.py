"""Ending tasks for good, and starts that are no longer wanted."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

_RETRY_S = 1.0


async def end_tasks(tasks: Iterable["asyncio.Task[Any] | asyncio.Future[Any]"]) -> None:
    """Cancel tasks until they have ended; what they raise is dropped.

    One cancellation is not enough: on Python 3.11 `asyncio.wait_for`, which redis-py uses to write, loses one that
    arrives together with its result, and the task goes on. A task that cleans up has 1 s before it is cancelled again,
    then twice as long each time.
    """
    all_tasks = set(tasks)
    left = {task for task in all_tasks if not task.done()}
    timeout_s = _RETRY_S
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=timeout_s)
        timeout_s *= 2
    for task in all_tasks:
        if not task.cancelled():
            # Retrieved, so that asyncio does not log it as never retrieved.
            task.exception()


async def start_unless(ended: asyncio.Event, start: Coroutine[Any, Any, None]) -> bool:
    """Run `start`, and return True when it has finished; cancel it and return False if `ended` is set before.

    Raises what `start` raises, unless it was cancelled.
    """
    starting, ending = asyncio.ensure_future(start), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    finally:
        ending.cancel()
