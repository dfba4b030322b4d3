"""Tasks next to their callers: kept while they run, and ended together."""

import asyncio
from contextvars import Context, ContextVar

from tradewind.server.side_tasks import SideTasks

WHOSE: ContextVar[str] = ContextVar("WHOSE", default="nobody's")


async def test_task_is_held_until_it_has_ended() -> None:
    tasks, go_on = SideTasks(), asyncio.Event()
    tasks.begin(go_on.wait())
    (task,) = tasks
    go_on.set()

    assert await task
    assert not tasks


async def test_settle_waits_for_tasks_begun_meanwhile() -> None:
    tasks, ended = SideTasks(), asyncio.Event()

    async def last() -> None:
        await asyncio.sleep(0)
        ended.set()

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.begin(last())

    tasks.begin(first())
    await tasks.settle()

    assert ended.is_set()
    assert not tasks


async def test_settle_removes_tasks_that_have_just_ended() -> None:
    tasks, ending = SideTasks(), asyncio.Event()

    async def work() -> None:
        ending.set()

    tasks.begin(work())
    await ending.wait()
    assert all(task.done() for task in tasks)
    await tasks.settle()

    assert not tasks


async def test_end_cancels_all_tasks_and_drops_their_exceptions() -> None:
    tasks, cleaned_up = SideTasks(), asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()
            raise ValueError("dropped")

    tasks.begin(stubborn())
    tasks.begin(asyncio.Event().wait())
    await asyncio.sleep(0)
    await tasks.end()

    assert cleaned_up.is_set()
    assert not tasks


async def test_task_runs_in_copy_of_callers_context_or_in_given_one() -> None:
    tasks = SideTasks()
    WHOSE.set("the caller's")

    async def read_whose() -> str:
        return WHOSE.get()

    assert await tasks.task(read_whose()) == "the caller's"
    assert await tasks.task(read_whose(), Context()) == "nobody's"
