"""Events on their way to schedulers: none is late, none is lost, and nobody waits for another."""

import asyncio

import pytest
from structlog.testing import capture_logs

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
            self._store.append(ComponentEvent(f"{number}-0", partition, 0, "f:0:0", "r0", "0", 1, 1, 1))
        return self._store.new_events()


@pytest.fixture
def log() -> Log:
    return Log(ManualClock())


@pytest.fixture
def feed(log: Log) -> EventFeed:
    """A feed that does not look for events that it was not told of."""
    return feed_of(log, poll_s=600)


def feed_of(log: Log, poll_s: float) -> EventFeed:
    return EventFeed({0: Shard(0, log, log, log, log, log, log)}, lambda _partition, _epoch: None, poll_s)


async def ids(feed: EventFeed, subscriber: Subscriber) -> list[str]:
    """Return the ids of the next events, which must come without a periodic look."""
    found, _ = await asyncio.wait_for(feed.next(subscriber), 20)
    return [event.event_id for _, event in found]


async def test_event_announced_during_a_read_is_delivered_next(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    log.add(1)
    await feed.subscribe(subscriber, PARTITION, 1)
    answered = log.unanswered["read"] = asyncio.Event()
    first = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read"), "events are read")
    log.add(2)
    feed.notify(0, [PARTITION])
    answered.set()
    assert await first == ["1-0"]
    assert await ids(feed, subscriber) == ["2-0"]


async def test_consecutive_events_are_delivered_without_a_read(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    assert feed.push(0, log.add(1, 2)) == set()
    assert await ids(feed, subscriber) == ["1-0", "2-0"]
    log.refused["read"] = always
    feed.push(0, log.add(3))
    assert await ids(feed, subscriber) == ["3-0"]


async def test_unacknowledged_events_come_again_once_the_store_is_back(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    feed.push(0, log.add(1, 2, 3))
    assert await ids(feed, subscriber) == ["1-0", "2-0", "3-0"]
    await feed.acknowledge(subscriber, [(0, PARTITION, "1-0")])
    feed.push(0, log.add(4))
    feed.recheck()
    assert await ids(feed, subscriber) == ["2-0", "3-0", "4-0"]


async def test_gap_before_an_event_is_filled_by_a_read(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    log.add(1)
    assert await ids(feed, subscriber) == ["1-0"]
    log.add(2)
    feed.push(0, log.add(3))
    assert await ids(feed, subscriber) == ["2-0", "3-0"]


async def test_event_pushed_during_a_read_is_delivered_once(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    answered = log.unanswered["read"] = asyncio.Event()
    first = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read"), "events are read")
    feed.push(0, log.add(1))
    log.add(2)
    answered.set()
    assert await first == ["1-0"]
    assert await ids(feed, subscriber) == ["2-0"]


async def test_events_beyond_the_buffer_are_read_from_the_store(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    feed.push(0, log.add(*range(1, 601)))
    assert [len(await ids(feed, subscriber)) for _ in range(2)] == [500, 100]


async def test_buffered_events_are_dropped_when_partition_is_taken_over(feed: EventFeed, log: Log) -> None:
    older, newer = Subscriber(), Subscriber()
    await feed.subscribe(older, PARTITION, 1)
    await feed.subscribe(older, 4, 1)
    feed.push(0, log.add(1))
    feed.push(0, log.add(1, partition=4))
    await feed.subscribe(newer, PARTITION, 2)
    assert await ids(feed, newer) == ["1-0"]
    assert await asyncio.wait_for(feed.next(older), 20) == ([], [PARTITION])
    (event,), _ = await asyncio.wait_for(feed.next(older), 20)
    assert event[1].partition == 4
    assert feed.push(0, log.add(2, partition=5)) == {5}


async def test_partition_taken_over_during_a_read_goes_only_to_new_owner(feed: EventFeed, log: Log) -> None:
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


async def test_stuck_subscriber_does_not_block_others(feed: EventFeed, log: Log) -> None:
    stuck, other = Subscriber(), Subscriber()
    await feed.subscribe(stuck, PARTITION, 1)
    await feed.subscribe(other, 4, 1)
    for number in range(1, 50):
        log.add(number)
        feed.notify(0, [PARTITION])
    log.add(1, partition=4)
    feed.notify(0, [4])
    assert await ids(feed, other) == ["1-0"]
    await asyncio.wait_for(feed.subscribe(other, PARTITION, 2), 20)
    assert stuck.ended == [PARTITION]


async def test_higher_epoch_wins_regardless_of_order(feed: EventFeed, log: Log) -> None:
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


async def test_higher_epoch_at_another_replica_ends_local_subscription(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    await feed.subscribe(subscriber, PARTITION, 5)
    feed.supersede(PARTITION, 5)
    assert subscriber.ended == []
    feed.supersede(PARTITION, 6)
    assert (subscriber.ended, feed.push(0, log.add(1)), subscriber.positions) == ([PARTITION], {PARTITION}, {})


async def test_failed_reads_lose_no_events_and_are_logged_once(
    feed: EventFeed, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_RETRY_S", 0.001)
    subscriber = Subscriber()
    log.add(1)
    log.refused["read"] = always
    await feed.subscribe(subscriber, PARTITION, 1)
    reading = asyncio.create_task(ids(feed, subscriber))
    with capture_logs() as logs:
        await until(lambda: log.count("read") > 4, "it is tried again")
    del log.refused["read"]
    assert await reading == ["1-0"]
    assert [(line["event"], line["what"]) for line in logs] == [("events_not_read", "shard 0")]


async def test_events_beyond_one_read_follow_at_once(feed: EventFeed, log: Log) -> None:
    subscriber = Subscriber()
    log.add(*range(1, 1201))
    await feed.subscribe(subscriber, PARTITION, 1)
    assert [len(await ids(feed, subscriber)) for _ in range(3)] == [500, 500, 200]


async def test_feed_polls_for_unannounced_events(log: Log) -> None:
    feed, subscriber = feed_of(log, poll_s=0.01), Subscriber()
    await feed.subscribe(subscriber, PARTITION, 1)
    reading = asyncio.create_task(ids(feed, subscriber))
    await until(lambda: log.count("read"), "there is nothing yet")
    log.add(1)
    assert await reading == ["1-0"]
