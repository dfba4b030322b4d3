"""Events on their way to schedulers: none is late, none is lost, and nobody waits for another."""

import asyncio

import pytest

from tests.unit.node_task_manager.faulty_store import FaultyStore, always
from tests.waiting import until
from tradewind.node_task_manager.ports.events import ComponentEvent, NewEvent
from tradewind.node_task_manager.use_cases import events
from tradewind.node_task_manager.use_cases.events import EventFeed, Subscriber
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.clock import ManualClock

PARTITION = 3


class Log(FaultyStore):
    """A shard's events."""

    def add(self, *numbers: int, partition: int = PARTITION) -> list[NewEvent]:
        """Append events; return what their script's answer reports."""
        for number in numbers:
            self._store.append(ComponentEvent(f"{number}-0", partition, 0, "f:0:0", "r0", "0", 1, 1, 0, 0, 0, 1))
        return self._store.new_events()


@pytest.fixture
def log() -> Log:
    return Log(ManualClock())


@pytest.fixture
def feed(log: Log) -> EventFeed:
    """A feed that does not look for events that it was not told of."""
    return feed_of(log, look_s=600)


def feed_of(log: Log, look_s: float) -> EventFeed:
    return EventFeed({0: Shard(0, log, log, log, log, log, log)}, lambda _partition, _epoch: None, look_s)


async def ids(feed: EventFeed, subscriber: Subscriber) -> list[str]:
    """Return the ids of the next events, which must come without a periodic look."""
    found, _ = await asyncio.wait_for(feed.next(subscriber), 20)
    return [event.event_id for _, event in found]


async def test_an_event_that_is_announced_while_older_ones_are_read_is_not_late(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    log.add(1)
    await feed.subscribe(subscriber, PARTITION, 1)
    answered = log.unanswered["read"] = asyncio.Event()
    first = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read"), "events are read")
    log.add(2)
    feed.announce(0, [PARTITION])
    answered.set()
    assert await first == ["1-0"]
    assert await ids(feed, subscriber) == ["2-0"]


async def test_events_that_follow_what_was_told_go_on_without_being_read(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    assert feed.bring(0, log.add(1, 2)) == set()
    assert await ids(feed, subscriber) == ["1-0", "2-0"]
    log.refused["read"] = always
    feed.bring(0, log.add(3))
    assert await ids(feed, subscriber) == ["3-0"]


async def test_an_event_that_does_not_follow_what_was_told_is_read_with_what_is_between(
    feed: EventFeed, log: Log
) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    log.add(1)
    assert await ids(feed, subscriber) == ["1-0"]
    log.add(2)
    feed.bring(0, log.add(3))
    assert await ids(feed, subscriber) == ["2-0", "3-0"]


async def test_an_event_that_is_brought_while_older_ones_are_read_is_told_once(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    answered = log.unanswered["read"] = asyncio.Event()
    first = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read"), "events are read")
    feed.bring(0, log.add(1))
    log.add(2)
    answered.set()
    assert await first == ["1-0"]
    assert await ids(feed, subscriber) == ["2-0"]


async def test_of_those_that_are_brought_to_who_does_not_take_them_only_so_many_are_kept(
    feed: EventFeed, log: Log
) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    feed.bring(0, log.add(*range(1, 601)))
    assert [len(await ids(feed, subscriber)) for _ in range(2)] == [500, 100]


async def test_what_was_brought_of_a_partition_goes_with_it(feed: EventFeed, log: Log) -> None:
    older, newer = Subscriber(), Subscriber()
    await feed.subscribe(older, PARTITION, 1)
    await feed.subscribe(older, 4, 1)
    feed.bring(0, log.add(1))
    feed.bring(0, log.add(1, partition=4))
    await feed.subscribe(newer, PARTITION, 2)
    assert await ids(feed, newer) == ["1-0"]
    assert await asyncio.wait_for(feed.next(older), 20) == ([], [PARTITION])
    (told,), _ = await asyncio.wait_for(feed.next(older), 20)
    assert told[1].partition == 4
    assert feed.bring(0, log.add(2, partition=5)) == {5}


async def test_a_partition_that_is_taken_over_while_it_is_read_goes_to_its_new_owner_alone(
    feed: EventFeed, log: Log
) -> None:
    older, newer = Subscriber(), Subscriber()
    log.add(1)
    await feed.subscribe(older, PARTITION, 1)
    answered = log.unanswered["read"] = asyncio.Event()
    reading = asyncio.create_task(feed.next(older))
    await until(lambda: log.count("read"), "events are read for the older one")
    await feed.subscribe(newer, PARTITION, 2)
    answered.set()
    assert await asyncio.wait_for(reading, 20) == ([], [PARTITION])
    assert await ids(feed, newer) == ["1-0"]


async def test_a_receiver_that_does_not_read_keeps_nobody_waiting(feed: EventFeed, log: Log) -> None:
    stuck, other = Subscriber(), Subscriber()
    await feed.subscribe(stuck, PARTITION, 1)
    await feed.subscribe(other, 4, 1)
    for number in range(1, 50):
        log.add(number)
        feed.announce(0, [PARTITION])
    log.add(1, partition=4)
    feed.announce(0, [4])
    assert await ids(feed, other) == ["1-0"]
    await asyncio.wait_for(feed.subscribe(other, PARTITION, 2), 20)
    assert stuck.ended == [PARTITION]


async def test_the_higher_epoch_wins_whatever_comes_first(feed: EventFeed, log: Log) -> None:
    high, low = Subscriber(), Subscriber()
    answered = log.unanswered["subscribe"] = asyncio.Event()
    late = asyncio.create_task(feed.subscribe(low, PARTITION, 1))
    await until(lambda: log.count("subscribe"), "the lower one is known to the store")
    del log.unanswered["subscribe"]
    await feed.subscribe(high, PARTITION, 2)
    answered.set()
    await late
    assert (list(high.partitions), low.ended, high.ended) == ([PARTITION], [PARTITION], [])
    await feed.acknowledge(low, [(0, PARTITION, "1-0")])
    assert log.count("acknowledge") == 0


async def test_a_subscription_elsewhere_with_a_higher_epoch_ends_the_one_here(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 5)
    feed.supersede(PARTITION, 5)
    assert subscriber.ended == []
    feed.supersede(PARTITION, 6)
    assert (subscriber.ended, feed.bring(0, log.add(1)), subscriber.positions) == ([PARTITION], {PARTITION}, {})


async def test_a_store_that_cannot_be_read_for_a_moment_costs_no_event(
    feed: EventFeed, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_RETRY_S", 0.001)
    subscriber = Subscriber()
    log.add(1)
    log.refused["read"] = always
    await feed.subscribe(subscriber, PARTITION, 1)
    reading = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read") > 2, "it is tried again")
    del log.refused["read"]
    assert await reading == ["1-0"]


async def test_more_events_than_one_read_brings_follow_at_once(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    log.add(*range(1, 1201))
    await feed.subscribe(subscriber, PARTITION, 1)
    assert [len(await ids(feed, subscriber)) for _ in range(3)] == [500, 500, 200]


async def test_it_looks_by_itself_in_case_nobody_told(log: Log) -> None:
    feed, subscriber = feed_of(log, look_s=0.01), Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    reading = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read"), "there is nothing yet")
    log.add(1)
    assert await reading == ["1-0"]
