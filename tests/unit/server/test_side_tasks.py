"""Tasks next to their callers: kept while they run, and ended together."""

import asyncio
from contextvars import Context, ContextVar

from tradewind.server.side_tasks import SideTasks

WHOSE: ContextVar[str] = ContextVar("WHOSE", default="nobody's")


async def test_a_task_is_kept_until_it_has_ended() -> None:
    tasks, go_on = SideTasks(), asyncio.Event()
    tasks.begin(go_on.wait())
    (task,) = tasks
    go_on.set()

    assert await task
    assert not tasks


async def test_settling_waits_for_what_is_begun_meanwhile() -> None:
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


async def test_settling_takes_out_what_has_just_ended() -> None:
    tasks, ending = SideTasks(), asyncio.Event()

    async def work() -> None:
        ending.set()

    tasks.begin(work())
    await ending.wait()
    assert all(task.done() for task in tasks)
    await tasks.settle()

    assert not tasks


async def test_all_are_ended_and_what_they_raise_is_dropped() -> None:
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


async def test_a_task_has_a_copy_of_the_callers_context_or_the_one_given() -> None:
    tasks = SideTasks()
    WHOSE.set("the caller's")

    async def whose() -> str:
        return WHOSE.get()

    assert await tasks.task(whose()) == "the caller's"
    assert await tasks.task(whose(), Context()) == "nobody's"
