"""A stopped flow stays stopped, over restarts, whenever it was stopped."""

import pytest

from tests.stores.schedules.clockwork import Clockwork, Replica
from tests.stores.schedules.conftest import Make
from tests.waiting import until
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.server.partitions import partition_of

HOUR = 3600


async def stop_and_settle(works: Clockwork, scheduler: Replica) -> None:
    """Stop the flow, and wait until everything that a stop leaves to be done later is done."""
    running = len(works.nodes.running)
    flow = await scheduler.change.stop("f", "ada", "enough")
    assert flow.status is FlowStatus.STOPPED
    await until(lambda: not works.nodes.running, f"{running} running cycles are stopped")

    async def trigger_removed() -> bool:
        return await works.triggers.find(partition_of("f"), "f") is None

    await until(trigger_removed, "the trigger is removed")
    await scheduler.step()


async def check_nothing_begins(works: Clockwork, cycles: int) -> None:
    """Restart twice, let hours pass, and check that nothing begins."""
    for hours in (1, 2):
        scheduler = await works.replica()
        await works.run(scheduler, hours * HOUR)
        (flow,) = await scheduler.stores.flows.find(["f"])
        assert flow is not None
        assert (flow.status, flow.next_execution_ms, flow.running_cycles) == (FlowStatus.STOPPED, 0, 0)
        assert len(await works.cycles(scheduler)) == len(works.nodes.submitted) == cycles
    heads, _ = await works.triggers.poll(list(works.partitions), min(works.partitions))
    assert {due for due in heads.values() if due is not None} == set()


async def test_flow_stopped_between_cycles_stays_stopped(make: Make) -> None:
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, interval=60)
    await works.run(scheduler, 30)
    await stop_and_settle(works, scheduler)
    await check_nothing_begins(works, 1)


@pytest.mark.parametrize("overlap", ["skip", "queue_all", "allow"])
async def test_flow_stopped_during_a_cycle_stays_stopped(make: Make, overlap: str) -> None:
    works = make(cycle_ms=90_000)
    scheduler = await works.replica()
    await works.start(scheduler, interval=60, overlap=overlap)
    await works.run(scheduler, 70)
    begun = len(await works.cycles(scheduler))
    assert works.nodes.running
    await stop_and_settle(works, scheduler)
    assert {status for *_, status in await works.cycles(scheduler)} == {"cancelled"}
    await check_nothing_begins(works, begun)


async def test_flow_stopped_after_its_trigger_was_claimed_stays_stopped(make: Make) -> None:
    works = make()
    scheduler = await works.replica()
    await works.start(scheduler, interval=60)
    await works.run(scheduler, 59)
    works.clock.advance(1000)
    due = await scheduler.claim()
    assert [flow.flow_id for flow in due] == ["f"]
    await stop_and_settle(works, scheduler)
    await scheduler.begin(due)
    await check_nothing_begins(works, 1)
