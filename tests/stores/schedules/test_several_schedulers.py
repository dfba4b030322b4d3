"""Several schedulers and restarts: each planned time begins one cycle, and no number is missing."""

import asyncio
import random

from tests.stores.schedules.clockwork import LEASE_MS, Clockwork, Killed, Replica
from tests.stores.schedules.conftest import Make

TIMES = 100
FLOWS = ["a", "b", "c"]


async def check_each_once(works: Clockwork, scheduler: Replica, flow_id: str = "f") -> None:
    """Check that cycles 0..99 each began once, at the planned times in order, were handed over once, and completed."""
    cycles = await works.cycles(scheduler, flow_id)
    assert [number for number, *_ in cycles] == list(range(TIMES))
    assert [planned for _, planned, _, _ in cycles] == [60 * n for n in range(TIMES)]
    assert {status for *_, status in cycles} == {"completed"}
    submitted = [run.cycle for run in works.nodes.submitted if run.flow_id == flow_id]
    assert sorted(submitted) == list(range(TIMES))
    assert await works.ledger(scheduler, flow_id) == [(60 * n, "fired") for n in range(TIMES)]


async def test_two_schedulers_given_the_same_trigger_begin_one_cycle(make: Make) -> None:
    works = make()
    first = await works.replica()
    await works.start(first, interval=60, overlap="allow")
    second = works.another()
    second.epochs = first.epochs
    for number in range(TIMES):
        due = await first.claim()
        assert [flow.planned_ms for flow in due] == [works.begin_ms + 60_000 * number]
        await asyncio.gather(first.begin(due), second.begin(due))
        works.clock.advance(60_000)
    await first.step()
    await check_each_once_and_the_next_time(works, first)


async def check_each_once_and_the_next_time(works: Clockwork, scheduler: Replica) -> None:
    """Check the same as `check_each_once`, with the 101st time having come as well."""
    cycles = await works.cycles(scheduler)
    assert [(number, planned) for number, planned, _, _ in cycles] == [(n, 60 * n) for n in range(TIMES + 1)]
    assert sorted(run.cycle for run in works.nodes.submitted) == list(range(TIMES + 1))


async def test_each_time_begins_one_cycle_though_partitions_change_owners(make: Make) -> None:
    works = make()
    schedulers = [await works.replica(), works.another()]
    await works.start(schedulers[0], interval=60)
    chance = random.Random(7)
    for number in range(TIMES):
        if chance.random() < 0.3:
            schedulers.reverse()
            await schedulers[0].own()
        await works.run(schedulers[0], 60 * number + 30)
        # The other scheduler does not know yet, and finds nothing to do.
        assert await schedulers[1].claim() == []
    await check_each_once(works, schedulers[0])


async def test_each_time_begins_one_cycle_though_schedulers_are_killed(make: Make) -> None:
    chance = random.Random(1)
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, interval=60)
    deaths = {number: chance.choice(Replica.STEPS) for number in chance.sample(range(TIMES), 20)}
    killed = 0
    for number in range(TIMES):
        scheduler.dies_after = deaths.get(number, "")
        try:
            await works.run(scheduler, 60 * number + 1)
        except Killed:
            killed += 1
            scheduler = await works.replica()
        # The triggers that the dead one held come again when its lease has lapsed, before the next time is due.
        await works.run(scheduler, 60 * number + 59)
    assert killed == 20
    await check_each_once(works, scheduler)


async def test_times_due_while_no_scheduler_runs_begin_cycles_later(make: Make) -> None:
    works = make(flows=FLOWS)
    lost = await works.replica()
    for flow_id in FLOWS:
        await works.start(lost, flow_id, schedule={"interval": 60, "catch_up": "all"}, overlap="allow")
    held = await lost.claim()
    assert sorted(flow.flow_id for flow in held) == FLOWS
    works.clock.advance(LEASE_MS + 10 * 60_000)
    scheduler = await works.replica()
    await works.run(scheduler, (works.clock.now_ms() - works.begin_ms) / 1000 + 5)
    for flow_id in FLOWS:
        cycles = await works.cycles(scheduler, flow_id)
        assert [(number, planned) for number, planned, _, _ in cycles] == [(n, 60 * n) for n in range(11)]
        assert await works.ledger(scheduler, flow_id) == [(60 * n, "fired") for n in range(11)]
