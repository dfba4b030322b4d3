"""Streams to other services: which items are worked on, and on which stream, when it breaks or too many wait."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from tests.waiting import until
from tradewind.scheduler.loops import owned_stream
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.server.ending import end_tasks


class Stream:
    """Delivers numbers, one by one, and breaks after `length` of them."""

    def __init__(self, first: int, length: int) -> None:
        self.left = list(range(first, first + length))
        self.closed = False

    async def subscribe(self, epochs: Mapping[int, int]) -> None: ...

    async def unsubscribe(self, partitions: Collection[int]) -> None: ...

    async def receive(self) -> tuple[list[int], list[int]]:
        await asyncio.sleep(0)
        if not self.left:
            raise PeerUnavailable("peer", "it stops")
        return [self.left.pop(0)], []

    async def close(self) -> None:
        self.closed = True


class Owner:
    """Owns partition 0."""

    def __init__(self) -> None:
        self.epochs = {0: 1}

    def on_change(self, changed: Callable[[], None]) -> None: ...


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_stream, "_BACKOFF_S", (0.001, 0.001))


async def test_items_of_a_broken_stream_are_not_worked_on_with_the_next_one() -> None:
    """They come again on that."""
    streams = [Stream(0, 3), Stream(10, 1000)]
    opened: list[Stream] = []
    worked: list[tuple[Stream, int]] = []

    def open_stream() -> Stream:
        opened.append(streams.pop(0))
        return opened[-1]

    async def work(stream: Stream, items: list[int]) -> None:
        worked.extend((stream, item) for item in items)
        if stream is opened[0]:
            await asyncio.Event().wait()

    owner: Any = Owner()
    running = asyncio.create_task(OwnedStream("items", open_stream, Stream.receive, work, owner).run())
    await until(lambda: len(worked) > 3, "the next one is worked on")
    first, second = opened
    assert [item for stream, item in worked if stream is first] == [0]
    assert [item for stream, item in worked if stream is second][:2] == [10, 11]
    assert (first.closed, second.closed) == (True, False)
    await end_tasks([running])
    assert second.closed


async def test_nothing_is_read_while_too_many_items_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_stream, "_MAX_WAITING", 3)
    stream, released, worked = Stream(0, 1000), asyncio.Event(), list[int]()

    async def work(_: Stream, items: list[int]) -> None:
        worked.extend(items)
        await released.wait()

    owner: Any = Owner()
    running = asyncio.create_task(OwnedStream("items", lambda: stream, Stream.receive, work, owner).run())
    await until(lambda: len(stream.left) == 995, "one is worked on, and four wait")
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(stream.left) == 995
    released.set()
    await until(lambda: len(worked) > 10, "they are read on")
    assert worked == list(range(len(worked)))
    await end_tasks([running])
