"""Following an ad-hoc run: told or not, every change is seen, and the end at once."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.waiting import until
from tradewind.node_task_manager.use_cases import watch_runs
from tradewind.node_task_manager.use_cases.watch_runs import RunWatch

END = 9


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchers do not look for changes that they were not told of."""
    monkeypatch.setattr(watch_runs, "_POLL_S", 600.0)


class Run:
    """A run that counts up to its end, and its watcher."""

    def __init__(self) -> None:
        self.watch = RunWatch()
        self.state = 0
        self.reads = 0
        self.seen: list[int] = []

    async def read(self) -> int:
        self.reads += 1
        return self.state

    def states(self) -> AsyncGenerator[int, None]:
        return self.watch.follow("task:a", "ann", self.read, lambda state: state, lambda state: state == END)

    async def follow(self) -> None:
        async for state in self.states():
            self.seen.append(state)


async def test_notified_change_and_unnotified_follow_up_are_seen() -> None:
    run = Run()
    following = asyncio.create_task(run.follow())
    await until(lambda: run.reads == 2, "it has looked again, and found nothing new")
    run.state = 1
    run.watch.notify("task:a")
    await until(lambda: run.seen == [0, 1], "the change is seen")
    run.state = 2
    await until(lambda: run.seen == [0, 1, 2], "what nobody told is seen a moment later")
    run.state = END
    run.watch.notify("task:a", over=True)
    await asyncio.wait_for(following, 30)
    assert run.seen[-1] == END


async def test_the_end_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_runs, "_RECHECK_S", 600.0)
    run = Run()
    following = asyncio.create_task(run.follow())
    await until(lambda: run.seen == [0], "the run is seen")
    run.state = END
    run.watch.notify("task:a", over=True)
    await asyncio.wait_for(following, 30)


async def test_many_watchers_of_a_run_share_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_runs, "_RECHECK_S", 600.0)
    run = Run()
    following = [asyncio.create_task(run.follow()) for _ in range(50)]
    await until(lambda: run.seen == [0] * 50, "all have seen it")
    run.state = END
    run.watch.notify("task:a", over=True)
    await asyncio.wait_for(asyncio.gather(*following), 30)
    assert (run.reads, run.seen) == (2, [0] * 50 + [END] * 50)


async def test_watchers_of_two_users_share_nothing() -> None:
    """A user who may not see a run is told so, whoever else reads it."""
    run = Run()

    async def refused() -> int:
        raise LookupError("not yours")

    mine = run.states()
    others = run.watch.follow("task:a", "bob", refused, lambda state: state, lambda state: state == END)
    answers = await asyncio.gather(anext(mine), anext(others), return_exceptions=True)
    assert (answers[0], type(answers[1])) == (0, LookupError)
    await mine.aclose()


async def test_watcher_rechecks_after_a_gap() -> None:
    run = Run()
    following = asyncio.create_task(run.follow())
    await until(lambda: run.reads == 2, "it waits to be told")
    run.state = END
    run.watch.recheck()
    await asyncio.wait_for(following, 30)


async def test_watcher_is_not_notified_of_another_run() -> None:
    run = Run()
    following = asyncio.create_task(run.follow())
    await until(lambda: run.reads == 2, "it waits to be notified")
    run.watch.notify("task:b", over=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert run.reads == 2
    run.state = END
    run.watch.notify("task:a", over=True)
    await asyncio.wait_for(following, 30)


async def test_closed_watch_reads_no_more() -> None:
    run = Run()
    states = run.states()
    assert await anext(states) == 0
    await states.aclose()
    run.watch.notify("task:a", over=True)
    run.watch.recheck()
    assert (run.reads, run.watch._watchers) == (1, {})
