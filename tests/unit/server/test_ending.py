"""Ending tasks, including those that lose a cancellation."""

import asyncio
import gc

import pytest

from tradewind.server import ending
from tradewind.server.ending import end_tasks


async def deaf(times: int) -> None:
    """Swallow `times` cancellations."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            times -= 1
            if times < 0:
                raise


async def failing() -> None:
    await asyncio.sleep(0)
    raise ValueError("not of interest")


async def test_a_task_that_loses_a_cancellation_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_AGAIN_S", 0.01)
    tasks = [asyncio.create_task(deaf(times)) for times in (0, 1, 2)] + [asyncio.create_task(failing())]
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks(tasks), 5)
    assert all(task.done() for task in tasks)


async def test_there_may_be_nothing_to_end() -> None:
    await end_tasks([])


async def test_nobody_is_told_of_what_they_raise() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    before = asyncio.create_task(failing())
    await asyncio.wait([before])
    during = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await end_tasks([before, during])
    del before, during
    gc.collect()
    assert told == []


async def test_a_task_that_cleans_up_is_not_disturbed_at_it() -> None:
    cleaned = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.2, cleaned.set)
            await cleaned.wait()

    task = asyncio.create_task(works())
    await asyncio.sleep(0)
    await end_tasks([task])
    assert cleaned.is_set()
