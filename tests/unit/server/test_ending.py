"""Ending tasks, including those that lose a cancellation."""

import asyncio
import gc

import pytest

from tradewind.server import ending
from tradewind.server.ending import end_tasks, start_unless


async def ignore_cancellations(times: int) -> None:
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


async def test_task_that_swallows_cancellations_is_cancelled_again_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "_RETRY_S", 0.01)
    tasks = [asyncio.create_task(ignore_cancellations(times)) for times in (0, 1, 2)] + [asyncio.create_task(failing())]
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks(tasks), 5)
    assert all(task.done() for task in tasks)


async def test_ending_no_tasks_is_allowed() -> None:
    await end_tasks([])


async def test_exceptions_of_ended_tasks_are_not_reported() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    before = asyncio.create_task(failing())
    await asyncio.wait([before])
    during = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await end_tasks([before, during])
    del before, during
    gc.collect()
    assert reported == []


async def test_task_that_cleans_up_is_not_interrupted() -> None:
    cleaned = asyncio.Event()

    async def clean_up_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.2, cleaned.set)
            await cleaned.wait()

    task = asyncio.create_task(clean_up_slowly())
    await asyncio.sleep(0)
    await end_tasks([task])
    assert cleaned.is_set()


async def test_start_unless_waits_for_the_start_and_raises_its_error() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no store")

    assert await start_unless(asyncio.Event(), asyncio.sleep(0))
    with pytest.raises(ValueError, match="no store"):
        await start_unless(asyncio.Event(), fail())


async def test_start_unless_cancels_a_start_that_is_no_longer_wanted() -> None:
    ended, cleaned = asyncio.Event(), False

    async def start() -> None:
        nonlocal cleaned
        ended.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned = True

    assert not await start_unless(ended, start())
    assert cleaned
