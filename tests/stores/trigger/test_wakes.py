"""When a store wakes receivers, and when it leaves them alone, for every store."""

from collections.abc import AsyncIterator
from functools import partial

import pytest_asyncio

from tests.servers import RedisServer
from tests.stores.trigger.bench import HOUR, PARTITION, Bench
from tests.waiting import until
from tradewind.server.redis.subscriber import Subscriber
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.trigger.domain.claim import SHARED, Subscription
from tradewind.trigger.domain.schedule import OnEvent, Schedule
from tradewind.trigger.ports.wakes import EarlierDue, NewListener, NewReceiver, Wake, WakeChannel
from tradewind.trigger.stores.keys import ACL, Keys
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.redis_wakes import RedisWakeChannel


class PublishedWakes(list[Wake]):
    """The published wakes; only those of one partition are in order: a cluster's nodes keep no order between them."""

    def __init__(self, server: RedisServer | None) -> None:
        super().__init__()
        self._nodes = [] if server is None else [partial(server.on_node, node) for node in server.nodes]
        self._marks = 0

    async def collect(self) -> dict[int, list[Wake]]:
        """Return the wakes since the last call, by partition; a mark after each node's wakes tells where they end."""
        marks = []
        for publish in self._nodes:
            self._marks += 1
            marks.append(NewReceiver(Subscription(15, self._marks, "mark")))
            await publish("PUBLISH", Keys().wake(15), f"receiver {self._marks} mark")
        await until(lambda: all(mark in self for mark in marks), "the marks have come")
        by_partition: dict[int, list[Wake]] = {}
        for wake in self:
            if wake not in marks:
                by_partition.setdefault(_partition(wake), []).append(wake)
        self.clear()
        return by_partition


def _partition(wake: Wake) -> int:
    return wake.subscription.partition if isinstance(wake, NewReceiver) else wake.partition


@pytest_asyncio.fixture
async def wakes(bench: Bench, server: RedisServer | None) -> AsyncIterator[PublishedWakes]:
    """Collects every wake of the store."""
    wakes = PublishedWakes(server)
    subscriber: Subscriber | None = None
    channel: WakeChannel
    if server is None:
        assert isinstance(bench.store, MemoryTriggerStore)
        channel = bench.store
    else:
        subscriber = Subscriber(server.url(ACL.name))
        subscriber.start()
        channel = RedisWakeChannel(subscriber, Keys())
    end = await channel.listen(wakes.append, lambda: None)
    yield wakes
    end()
    if subscriber is not None:
        await subscriber.stop()


async def test_only_a_save_that_is_due_earliest_wakes_receivers(bench: Bench, wakes: PublishedWakes) -> None:
    await bench.save("first", 5000)
    await bench.save("later", 6000)
    await bench.save("as-early", 5000)
    await bench.save("elsewhere", 7000, partition=4)
    await bench.save("earlier", 4000)
    await bench.save("earlier", 4000)

    assert await wakes.collect() == {
        PARTITION: [EarlierDue(PARTITION, bench.now + 5000), EarlierDue(PARTITION, bench.now + 4000)],
        4: [EarlierDue(4, bench.now + 7000)],
    }


async def test_accepted_subscription_is_published_and_refused_one_is_not(bench: Bench, wakes: PublishedWakes) -> None:
    await bench.subscribe(5, "s5")
    await bench.subscribe(4, "s4")

    assert await wakes.collect() == {PARTITION: [NewReceiver(Subscription(PARTITION, 5, "s5"))]}


async def test_answers_from_the_receiver_wake_nobody(bench: Bench, wakes: PublishedWakes) -> None:
    await bench.subscribe()
    for name in ("a", "b", "c"):
        await bench.save(name, Schedule.every(1000, bench.now))
    a, b, c = await bench.claim()
    await wakes.collect()

    await bench.ack(a)
    await bench.nack(b, retry_after_ms=10)
    await bench.give_back(c)
    await bench.extend(*await bench.claim(), lease_ms=10)

    assert await wakes.collect() == {}


async def test_answers_from_another_session_wake_the_receiver_if_due_earlier(
    bench: Bench, wakes: PublishedWakes
) -> None:
    await bench.save("a", Schedule.every(HOUR, bench.now))
    await bench.save("b", 0)
    a, b = await bench.claim(session="old")
    await bench.subscribe(2, "new")
    await bench.save("c", 2 * HOUR)
    await wakes.collect()

    await bench.ack(a, session="old")
    await bench.give_back(b, session="old")

    assert await wakes.collect() == {
        PARTITION: [EarlierDue(PARTITION, bench.now + HOUR), EarlierDue(PARTITION, bench.now)]
    }


async def test_withdrawn_order_wakes_any_receiver(bench: Bench, wakes: PublishedWakes) -> None:
    await bench.subscribe()
    await bench.save("a", 0)
    await bench.claim(nonce="lost")
    await bench.save("c", 5000)
    await wakes.collect()

    await bench.withdraw("unknown")
    await bench.withdraw("lost")
    await bench.withdraw("lost")

    assert await wakes.collect() == {PARTITION: [EarlierDue(PARTITION, bench.now)]}


async def test_receiver_without_room_for_all_that_lapsed_wakes_the_others_of_the_queue(
    bench: Bench, wakes: PublishedWakes
) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    for name in ("a", "b"):
        await queue.save(name, 0)
    due_ms = bench.now
    await queue.claim(epoch=SHARED, lease_ms=1000)
    await wakes.collect()

    bench.clock.advance(1000)
    await queue.claim(1, epoch=SHARED)
    await queue.claim(1, epoch=SHARED)

    assert await wakes.collect() == {PARTITION: [EarlierDue(PARTITION, due_ms, "q")]}


async def test_answer_that_keeps_the_earliest_due_time_wakes_nobody(bench: Bench, wakes: PublishedWakes) -> None:
    await bench.save("a", Schedule.every(HOUR, bench.now))
    (a,) = await bench.claim(session="old")
    await bench.save("c", 5000)
    await wakes.collect()

    await bench.ack(a, session="old")

    assert await wakes.collect() == {}


async def test_new_listener_is_published_once(bench: Bench, wakes: PublishedWakes) -> None:
    def on(name: str, symbol: str) -> Schedule:
        return Schedule(OnEvent(name, EventFilter(f'{{"symbol": "{symbol}"}}')))

    await bench.save("a", on("price", "IBM"))
    await bench.save("a", on("price", "IBM"))
    await bench.save("a", on("price", "AAPL"), epoch=2)
    await bench.save("b", on("price", "IBM"))
    await bench.save("a", on("order", "IBM"), epoch=3)
    await bench.save("b", HOUR, epoch=2)
    await bench.save("b", on("price", "IBM"), epoch=3)

    assert await wakes.collect() == {
        PARTITION: [
            NewListener(PARTITION, "price"),
            NewListener(PARTITION, "price"),
            NewListener(PARTITION, "order"),
            EarlierDue(PARTITION, bench.now + HOUR),
            NewListener(PARTITION, "price"),
        ]
    }
