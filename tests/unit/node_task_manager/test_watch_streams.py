"""Following a capped stream: told or not, everything is read once, and no faster than it is consumed."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.waiting import until
from tradewind.node_task_manager.ports.reading import Stretch
from tradewind.node_task_manager.use_cases import watch_streams
from tradewind.node_task_manager.use_cases.watch_streams import PAGE, StreamWatch


class Numbers:
    """A stream of numbers, which are also their positions, and its follower."""

    def __init__(self) -> None:
        self.watch = StreamWatch()
        self.last = 0
        self.reads = 0
        self.seen: list[int] = []

    async def read(self, after: str, limit: int) -> Stretch[int]:
        self.reads += 1
        first = int(after) + 1
        return Stretch(False, tuple(range(first, min(self.last, first + limit - 1) + 1)))

    def stretches(self) -> AsyncGenerator[Stretch[int], None]:
        return self.watch.follow("s", "0", self.read, str)

    async def follow(self) -> None:
        async for stretch in self.stretches():
            self.seen += stretch.entries

    def add(self, count: int = 1, *, notify: bool = True) -> None:
        self.last += count
        if notify:
            self.watch.notify("s")


async def test_notified_entries_are_read_across_pages() -> None:
    numbers = Numbers()
    following = asyncio.create_task(numbers.follow())
    await until(lambda: numbers.reads == 1, "it has looked")
    numbers.add()
    await until(lambda: numbers.seen == [1], "the first is read")
    numbers.add(3 * PAGE)
    await until(lambda: numbers.seen == list(range(1, 3 * PAGE + 2)), "all are read")
    following.cancel()


async def test_unnotified_entries_are_found_by_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_streams, "_POLL_S", 0.01)
    numbers = Numbers()
    following = asyncio.create_task(numbers.follow())
    await until(lambda: numbers.reads > 1, "it polls")
    numbers.add(notify=False)
    await until(lambda: numbers.seen == [1], "it is found")
    following.cancel()


async def test_many_watchers_poll_a_hundred_times_a_second_in_all() -> None:
    numbers = Numbers()
    few = numbers.stretches()
    await anext(few)
    assert numbers.watch.poll_s == 5
    many = [numbers.stretches() for _ in range(1999)]
    await asyncio.gather(*map(anext, many))
    assert numbers.watch.poll_s == 20
    for each in many:
        await each.aclose()
    assert numbers.watch.poll_s == 5
    await few.aclose()


async def test_watcher_polls_no_faster_than_all_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_streams, "_POLL_S", 0.0)
    monkeypatch.setattr(watch_streams, "_LOOKS_A_SECOND", 1 / 600)
    numbers = Numbers()
    following = asyncio.create_task(numbers.follow())
    await until(lambda: numbers.reads == 1, "it has looked")
    for _ in range(100):
        await asyncio.sleep(0)
    assert numbers.reads == 1
    following.cancel()


async def test_watcher_rechecks_after_a_gap() -> None:
    numbers = Numbers()
    following = asyncio.create_task(numbers.follow())
    await until(lambda: numbers.reads == 1, "it has looked")
    numbers.add(notify=False)
    numbers.watch.recheck()
    await until(lambda: numbers.seen == [1], "it is found")
    following.cancel()


async def test_slow_watcher_reads_on_demand_and_misses_nothing() -> None:
    numbers = Numbers()
    stretches = numbers.stretches()
    numbers.add(5)
    assert (await anext(stretches)).entries == (1, 2, 3, 4, 5)
    for _ in range(10_000):
        numbers.add()
    assert numbers.reads == 1
    assert (await anext(stretches)).entries == tuple(range(6, 6 + PAGE))
    await stretches.aclose()


async def test_closed_watchers_are_forgotten() -> None:
    numbers = Numbers()
    stretches, others = numbers.stretches(), numbers.stretches()
    await anext(stretches)
    await anext(others)
    await stretches.aclose()
    assert numbers.watch.followed == 1
    await others.aclose()
    assert numbers.watch.followed == 0
    numbers.add()
    assert numbers.reads == 2
