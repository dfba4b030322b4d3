"""Bounds of queues, and firings for events, for every store."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.servers import RedisServer
from tests.stores.trigger.bench import HOUR, PARTITION, Bench, memory_store, queue_store, redis_store
from tests.stores.trigger.bench import POLICY as POLICY_OF_BENCH
from tradewind.server.clock import ManualClock
from tradewind.server.schedules.event_filter import EventFilter
from tradewind.trigger.domain.claim import SHARED
from tradewind.trigger.domain.errors import QueueFull
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Delay, OnEvent, Schedule
from tradewind.trigger.domain.trigger import TriggerDraft, TriggerStatus
from tradewind.trigger.ports.queues import FiringOrder

DAY = 24 * 3_600_000
POLICY = Policy(max_queue_triggers=2, max_listeners=1, max_pending=1)
LISTENS = Schedule(OnEvent("tick", EventFilter("")))


@pytest_asyncio.fixture
async def small(server: RedisServer | None, clock: ManualClock) -> AsyncIterator[Bench]:
    """An empty store whose queues hold only a few triggers."""
    if server is not None:
        await server.flush()
    store = memory_store(clock, POLICY) if server is None else redis_store(server, clock, POLICY)
    yield Bench(store, clock, queue_store(server, store, POLICY))
    if server is not None:
        await server.close_clients()


async def test_full_queue_refuses_new_triggers_but_updates_existing_ones(small: Bench) -> None:
    queue = small.store.of_queue("q")
    for id in ("a", "b"):
        await queue.save(PARTITION, TriggerDraft(id, "q", Schedule.once(0)))

    with pytest.raises(QueueFull, match='queue "q" already holds 2 triggers'):
        await queue.save(PARTITION, TriggerDraft("c", "q", Schedule.once(0)))
    await queue.save(PARTITION, TriggerDraft("a", "q", LISTENS))
    with pytest.raises(QueueFull, match='1 triggers already listen to event "tick"'):
        await queue.save(PARTITION, TriggerDraft("b", "q", LISTENS))
    order = [FiringOrder(PARTITION, "q", "a")]
    assert await small.queues.fire(order, Event("e1", "tick")) == [Outcome.FIRED]
    assert await small.queues.fire(order, Event("e2", "tick")) == [Outcome.FULL]
    assert await small.queues.fire(order, Event("e1", "tick")) == [Outcome.DUPLICATE]
    await queue.remove(PARTITION, "b", 0)
    assert (await small.queues.counts(PARTITION, "q")).triggers == 1
    await queue.save(PARTITION, TriggerDraft("c", "q", Schedule.once(0)))


async def test_completed_trigger_listens_again_only_below_the_listener_limit(small: Bench) -> None:
    queue = Bench(small.store.of_queue("q"), small.clock, small.queues)
    once = replace(LISTENS, max_firings=1)
    await queue.save("a", once)
    assert await small.queues.fire([FiringOrder(PARTITION, "q", "a")], Event("e1", "tick")) == [Outcome.FIRED]
    (due,) = await queue.claim(epoch=SHARED)
    await queue.ack(due)
    assert (await queue.found("a")).status is TriggerStatus.COMPLETED
    assert await small.queues.fire([FiringOrder(PARTITION, "q", "a")], Event("e1", "tick")) == [Outcome.DUPLICATE]
    await queue.save("b", LISTENS)

    with pytest.raises(QueueFull, match='1 triggers already listen to event "tick"'):
        await queue.save("a", once, epoch=2)
    await queue.save("b", LISTENS, epoch=2)
    await queue.store.remove(PARTITION, "b", 2)
    assert (await queue.save("a", once, epoch=2)).status is TriggerStatus.WAITING


async def test_full_queue_has_room_again_after_ended_triggers_expire(small: Bench, clock: ManualClock) -> None:
    queue = small.store.of_queue("q")
    for id in ("a", "b"):
        # The schedule ends before it begins, so the trigger is completed at once.
        ended = Schedule(Delay(1000), end_ms=clock.now_ms())
        await queue.save(PARTITION, TriggerDraft(id, "q", ended))
    with pytest.raises(QueueFull, match='queue "q" already holds 2 triggers'):
        await queue.save(PARTITION, TriggerDraft("c", "q", Schedule.once(0)))
    clock.advance(7 * DAY)
    assert (await queue.save(PARTITION, TriggerDraft("c", "q", Schedule.once(0)))).id == "c"


async def test_simultaneous_events_get_distinct_planned_times(bench: Bench) -> None:
    await bench.store.save(PARTITION, TriggerDraft("f", "f", LISTENS))
    order = [FiringOrder(PARTITION, "", "f")]
    for at in range(3):
        assert await bench.queues.fire(order, Event(f"e{at}", "tick")) == [Outcome.FIRED]
    # Saving again when the trigger listens does not restart the moments.
    await bench.store.save(PARTITION, TriggerDraft("f", "f", LISTENS, epoch=2))
    assert await bench.queues.fire(order, Event("e3", "tick")) == [Outcome.FIRED]
    page = await bench.store.page_scheduled(PARTITION, None, None, 10)
    assert [each.planned_ms - bench.now for each in page.triggers] == [0, 1, 2, 3]
    assert [each.event.id for each in page.triggers if each.event] == ["e0", "e1", "e2", "e3"]
    assert [each.epoch for each in page.triggers] == [0, 0, 0, 2]


async def test_event_outside_the_window_does_not_fire(bench: Bench) -> None:
    await bench.store.save(PARTITION, TriggerDraft("f", "f", replace(LISTENS, end_ms=bench.now + 2000)))
    order = [FiringOrder(PARTITION, "", "f", bench.now + 1000)]
    assert await bench.queues.fire(order, Event("e0", "tick")) == [Outcome.GONE]
    assert await bench.queues.fire(order, Event("e0", "tick"), by_hand=True) == [Outcome.FIRED]
    for at, outcome in ((1000, Outcome.FIRED), (1999, Outcome.FIRED), (2000, Outcome.GONE)):
        bench.clock.advance(order[0].start_ms - 1000 + at - bench.now)
        assert await bench.queues.fire(order, Event(f"e{at}", "tick")) == [outcome]


async def test_acknowledged_firing_is_over(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("a", LISTENS)
    order = [FiringOrder(PARTITION, "q", "a")]
    assert await bench.queues.fire(order, Event("e1", "tick")) == [Outcome.FIRED]
    (due,) = await queue.claim(epoch=SHARED, lease_ms=1000)
    assert not (await queue.ack(due)).lost
    assert await queue.find(due.trigger.id) is None
    assert (await queue.ack(due)).lost == {due.token}
    bench.clock.advance(1001)
    assert await queue.claim(epoch=SHARED) == []
    assert (await queue.found("a")).status is TriggerStatus.WAITING


async def test_trigger_that_is_paused_while_it_is_claimed_goes_on_where_its_answer_says(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    start_ms = bench.now
    await queue.save("a", Schedule.every(1000, start_ms))
    (due,) = await queue.claim(epoch=SHARED)
    await bench.queues.pause(PARTITION, "q", "a", "")
    await queue.ack(due)
    paused = await queue.found("a")
    assert (paused.status, paused.planned_ms) == (TriggerStatus.PAUSED, start_ms + 1000)
    assert await bench.queues.resume(PARTITION, "q", "a", start_ms, None) is not None
    assert await queue.claim(epoch=SHARED) == []
    bench.clock.advance(1000)
    assert len(await queue.claim(epoch=SHARED)) == 1


async def test_unknown_trigger_is_neither_paused_nor_resumed(bench: Bench) -> None:
    assert await bench.queues.pause(PARTITION, "q", "none", "") is None
    assert await bench.queues.resume(PARTITION, "q", "none", 0, 0) is None


@pytest.mark.parametrize("schedule", [Schedule.once(0), LISTENS], ids=["once", "listens"])
async def test_trigger_that_is_saved_while_it_is_paused_stays_paused(bench: Bench, schedule: Schedule) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("a", HOUR)
    await bench.queues.pause(PARTITION, "q", "a", "ann: till the feed is there")
    saved = await queue.save("a", schedule)
    assert (saved.status, saved.pause_note) == (TriggerStatus.PAUSED, "ann: till the feed is there")
    assert await queue.found("a") == saved
    assert await bench.queues.fire([FiringOrder(PARTITION, "q", "a")], Event("e1", "tick")) == [Outcome.GONE]
    assert await queue.claim(epoch=SHARED) == []
    anew = await queue.save("a", schedule, epoch=2)
    assert (anew.paused, anew.pause_note) == (False, "")


async def test_firing_of_a_removed_trigger_is_none_of_another_one_with_its_id(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("a", LISTENS)
    for event in ("dies", "claimed", "waits"):
        await bench.queues.fire([FiringOrder(PARTITION, "q", "a")], Event(event, "tick"))
    bench.clock.advance(10)
    (dead,) = await queue.claim(1, epoch=SHARED)
    for _ in range(POLICY_OF_BENCH.max_failures - 1):
        await queue.nack(dead, retry_after_ms=0)
        (dead,) = await queue.claim(1, epoch=SHARED)
    await queue.nack(dead, retry_after_ms=0)
    (claimed,) = await queue.claim(1, epoch=SHARED)
    bench.clock.advance(1)
    await queue.store.remove(PARTITION, "a", 1)
    assert not await bench.queues.redrive(PARTITION, "q", dead.trigger.id)
    await queue.save("a", LISTENS, epoch=2)
    assert not await bench.queues.redrive(PARTITION, "q", dead.trigger.id)
    assert await queue.claim(epoch=SHARED) == []
    assert not (await queue.ack(claimed)).lost
    assert ((await queue.found("a")).fired, (await queue.found("a")).pending) == (0, 0)


async def test_firings_that_wait_count_towards_the_most_that_a_trigger_has(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("a", replace(LISTENS, max_firings=2))
    order = [FiringOrder(PARTITION, "q", "a")]
    outcomes = [(await bench.queues.fire(order, Event(f"e{at}", "tick")))[0] for at in range(3)]
    assert outcomes == [Outcome.FIRED, Outcome.FIRED, Outcome.GONE]
    (first,) = await queue.claim(1, epoch=SHARED)
    await queue.ack(first)
    assert await bench.queues.fire(order, Event("e3", "tick")) == [Outcome.GONE]
    assert ((await queue.found("a")).fired, (await queue.found("a")).pending) == (1, 1)


async def test_dead_trigger_whose_retention_has_passed_counts_no_more_when_another_dies(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    for name in ("a", "b"):
        bench.clock.advance(POLICY_OF_BENCH.retention_ms)
        await queue.save(name, 0)
        for _ in range(POLICY_OF_BENCH.max_failures):
            await queue.nack(*await queue.claim(epoch=SHARED), retry_after_ms=0)
    assert (await bench.queues.counts(PARTITION, "q")).dead == 1


async def test_firing_in_place_of_a_dead_one_whose_retention_has_passed_is_not_dead(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("a", LISTENS)
    order, event = [FiringOrder(PARTITION, "q", "a")], Event("e1", "tick")
    await bench.queues.fire(order, event)
    for _ in range(POLICY_OF_BENCH.max_failures):
        await queue.nack(*await queue.claim(epoch=SHARED), retry_after_ms=0)
    bench.clock.advance(POLICY_OF_BENCH.retention_ms)
    assert await bench.queues.fire(order, event) == [Outcome.FIRED]
    assert (await bench.queues.page_dead(PARTITION, "q", None, 10)).triggers == ()
    assert (await bench.queues.counts(PARTITION, "q")).dead == 0


async def test_firing_by_hand_is_none_of_those_that_a_schedule_may_have(bench: Bench) -> None:
    queue = Bench(bench.store.of_queue("q"), bench.clock, bench.queues)
    await queue.save("a", replace(Schedule.every(HOUR, bench.now + 1000), max_firings=1))
    order = [FiringOrder(PARTITION, "q", "a")]
    assert await bench.queues.fire(order, Event("e1", "now"), by_hand=True) == [Outcome.FIRED]
    await queue.ack(*await queue.claim(epoch=SHARED))
    waiting = await queue.found("a")
    assert (waiting.status, waiting.fired) == (TriggerStatus.SCHEDULED, 0)
