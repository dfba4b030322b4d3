"""Beginning the cycles of backfills, however many other cycles are running."""

import itertools
from dataclasses import replace

import pytest

from tests.older_tzdata import forget_zone
from tests.stores.scheduler.bench import MINUTE, backfill_draft
from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.use_cases.begin_backfilled import BeginBackfilled
from tradewind.server.partitions import partition_of

HERE = partition_of("f")


async def test_backfills_of_paused_flows_do_not_block_others() -> None:
    scheduler = MemoryScheduler()
    flows, backfills = scheduler.stores.flows, scheduler.stores.backfills
    near = (f"paused{number}" for number in itertools.count() if partition_of(f"paused{number}") == HERE)
    for flow_id in itertools.islice(near, 21):
        await scheduler.register(flow_id)
        for status in (FlowStatus.RUNNING, FlowStatus.PAUSED):
            await flows.change_status(StatusChange(flow_id, status, tuple(FlowStatus)))
        for _ in range(5):
            await backfills.create(backfill_draft(MINUTE, 3 * MINUTE, flow_id=flow_id))
    scheduler.clock.advance(1)
    await scheduler.register()
    await backfills.create(backfill_draft(MINUTE, 3 * MINUTE))
    epoch = await scheduler.stores.partitions.acquire(HERE)
    begun = await BeginBackfilled(scheduler.begin, backfills, lambda _flow_id: None)({HERE: epoch})
    assert [run.state.name.flow_id for run in begun] == ["f"]


async def test_backfill_in_unknown_zone_waits_and_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = MemoryScheduler()
    backfills = scheduler.stores.backfills
    other = next(name for name in (f"f{at}" for at in itertools.count()) if partition_of(name) == HERE)
    for flow_id in (other, "f"):
        await scheduler.register(flow_id)
    draft = backfill_draft(MINUTE, 3 * MINUTE, flow_id=other)
    await backfills.create(replace(draft, schedule=ScheduleDefinition(cron="* * * * *", zone="Europe/Berlin")))
    scheduler.clock.advance(1)
    await backfills.create(backfill_draft(MINUTE, 3 * MINUTE))
    forget_zone(monkeypatch, "Europe/Berlin")
    epoch = await scheduler.stores.partitions.acquire(HERE)
    begun = await BeginBackfilled(scheduler.begin, backfills, lambda _flow_id: None)({HERE: epoch})
    assert [run.state.name.flow_id for run in begun] == ["f"]


async def test_nothing_begins_for_a_backfill_that_is_gone() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    assert await BeginBackfilled(scheduler.begin, scheduler.stores.backfills, lambda _flow_id: None).one("f", 7) == []
