"""Beginning the cycles of backfills, however many other cycles are running."""

import itertools

from tests.stores.scheduler.bench import MINUTE, backfill_draft
from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
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
