"""Flows that begin on events: each begins one cycle with its payload, whoever dies; none when the flow is stopped."""

import asyncio
import json
import random
from collections.abc import Sequence

import pytest

from tests.stores.schedules.clockwork import Clockwork, Killed, Replica
from tests.stores.schedules.conftest import Make
from tests.waiting import until
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.server.partitions import partition_of

ON_PRICE = {"event": {"name": "price", "filter": {"n": {"$gte": 0}}}}


async def begun(scheduler: Replica) -> list[tuple[int, int]]:
    """Return the cycles of the flow: number, and the `n` in the payload of its event."""
    states = await scheduler.stores.cycles.newest("f", None, 1000)
    return [(state.name.cycle, json.loads(state.facts.inputs_json)["n"]) for state in reversed(states)]


async def check_each_once(works: Clockwork, scheduler: Replica, events: int) -> None:
    """Check that each event began one cycle, which was handed over once, and that nothing is left to do."""
    cycles = await begun(scheduler)
    assert [cycle for cycle, _ in cycles] == list(range(events))
    assert sorted(n for _, n in cycles) == list(range(events))
    assert sorted(run.cycle for run in works.nodes.submitted) == list(range(events))
    lines = reversed(await scheduler.stores.firings.newest("f", 0, 2000))
    numbers = {n: cycle for cycle, n in cycles}
    assert [(line.event_id, line.outcome.value, line.cycle) for line in lines] == [
        (f"e {n}", "fired", numbers[n]) for n in range(events)
    ]
    assert await scheduler.claim() == []


async def check_in_order(works: Clockwork, scheduler: Replica, events: int) -> None:
    """Check the same as `check_each_once`, and that cycles began in the order in which events were published."""
    await check_each_once(works, scheduler, events)
    assert all(cycle == n for cycle, n in await begun(scheduler))


async def publish(works: Clockwork, numbers: Sequence[int]) -> int:
    """Publish events at one moment; return how many firings they made."""
    return sum([await works.publish("price", f"e {n}", {"n": n}) for n in numbers])


async def test_each_event_begins_one_cycle_though_schedulers_are_killed(make: Make) -> None:
    chance = random.Random(3)
    works = make(cycle_ms=7_000)
    scheduler = await works.replica()
    await works.start(scheduler, schedule=ON_PRICE, overlap="queue_all")
    deaths = {number: chance.choice(Replica.STEPS) for number in chance.sample(range(50), 20)}
    killed = 0
    for number in range(50):
        # Two events in the same millisecond, and the publisher does not know whether they arrived.
        both = [2 * number, 2 * number + 1]
        assert (await publish(works, both), await publish(works, both)) == (2, 0)
        assert await works.publish("price", f"none {number}", {"n": -1}) == 0
        scheduler.dies_after = deaths.get(number, "")
        try:
            await works.run(scheduler, 60 * number + 1)
        except Killed:
            killed += 1
            scheduler = await works.replica()
        await works.run(scheduler, 60 * number + 59)
    assert killed == 20
    await check_each_once(works, scheduler, 100)


async def test_two_schedulers_given_the_same_event_begin_one_cycle(make: Make) -> None:
    works = make()
    first = await works.replica()
    await works.start(first, schedule=ON_PRICE, overlap="allow")
    second = works.another()
    second.epochs = first.epochs
    for number in range(20):
        assert await publish(works, [number]) == 1
        due = await first.claim()
        await asyncio.gather(first.begin(due), second.begin(due))
        works.clock.advance(1_000)
    await check_in_order(works, first, 20)


async def test_events_published_while_no_scheduler_runs_begin_cycles_later(make: Make) -> None:
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, schedule=ON_PRICE, overlap="queue_all")
    assert await publish(works, range(5)) == 5
    works.clock.advance(1_800_000)
    scheduler = await works.replica()
    await works.run(scheduler, 1_900)
    await check_in_order(works, scheduler, 5)


async def test_event_unhandled_for_longer_than_the_window_is_missed(make: Make) -> None:
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, schedule={**ON_PRICE, "catch_up_window": "10m"}, overlap="queue_all")
    await publish(works, [0])
    works.clock.advance(700_000)
    await publish(works, [1])
    await scheduler.step()
    assert [outcome for _, outcome in await works.ledger(scheduler)] == ["missed", "fired"]
    assert await begun(scheduler) == [(0, 1)]


async def test_only_events_between_start_and_end_begin_cycles(make: Make) -> None:
    works = make()
    scheduler = await works.replica()
    # The clockwork begins at 2023-11-14T22:13:20Z.
    window = {"start": "2023-11-14T22:14:20Z", "end": "2023-11-14T22:15:20Z"}
    await works.start(scheduler, schedule={**ON_PRICE, **window}, overlap="queue_all")
    fired = []
    for number in range(3):
        fired.append(await publish(works, [number]))
        await works.run(scheduler, 60 * (number + 1))
    assert fired == [0, 1, 0]
    assert await begun(scheduler) == [(0, 1)]


async def test_paused_flow_records_events_and_stopped_flow_receives_none(make: Make) -> None:
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, schedule=ON_PRICE)
    await scheduler.change.pause("f", "ann", "lunch")
    await trigger_is_current(works, scheduler)
    assert await publish(works, [0]) == 1
    await scheduler.step()
    await scheduler.change.resume("f")
    await trigger_is_current(works, scheduler)
    assert await publish(works, [1]) == 1
    await works.run(scheduler, 10)
    assert await publish(works, [2]) == 1
    assert (await scheduler.change.stop("f", "ann", "enough")).status is FlowStatus.STOPPED
    await trigger_is_current(works, scheduler)
    assert await publish(works, [3]) == 0
    await works.run(scheduler, 100)
    await scheduler.change.start("f")
    await trigger_is_current(works, scheduler)
    await works.run(scheduler, 200)
    assert await begun(scheduler) == [(0, 1)]
    lines = reversed(await scheduler.stores.firings.newest("f", 0, 2000))
    assert [(line.event_id, line.outcome.value, line.reason) for line in lines] == [
        ("e 0", "skipped", 'paused by "ann": lunch'),
        ("e 1", "fired", ""),
    ]


@pytest.mark.parametrize("overlap", ["skip", "allow"])
async def test_flow_completes_after_max_cycles(make: Make, overlap: str) -> None:
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, schedule={**ON_PRICE, "max_cycles": 2}, overlap=overlap)
    for number in range(2):
        await publish(works, [number])
        await works.run(scheduler, 60 * (number + 1))
    (flow,) = await scheduler.stores.flows.find(["f"])
    assert flow is not None
    assert flow.status is FlowStatus.COMPLETED
    assert await begun(scheduler) == [(0, 0), (1, 1)]


async def trigger_is_current(works: Clockwork, scheduler: Replica) -> None:
    """Wait until the trigger service knows the state of the flow."""

    async def current() -> bool:
        (flow,) = await scheduler.stores.flows.find(["f"])
        trigger = await works.triggers.find(partition_of("f"), "f")
        assert flow is not None
        epoch = flow.schedule_epoch if flow.has_trigger else None
        return (trigger.epoch if trigger else None) == epoch

    await until(current, "the trigger service knows")
