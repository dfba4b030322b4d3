"""What the doctor of the stores in memory asks other services about."""

from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.chain_state import SUBMITTED
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.doctor import PartitionReport
from tradewind.server.doctor import Examined
from tradewind.server.partitions import partition_of


async def examined(scheduler: MemoryScheduler) -> PartitionReport:
    return await scheduler.stores.doctor.examine(partition_of("f"), 0, "", 100, None, False)


async def test_running_flows_and_submitted_runs_are_to_be_known_elsewhere() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    run = await scheduler.run()
    assert await examined(scheduler) == PartitionReport(Examined(1, (), ""), (), ())
    await scheduler.write(structs.replace(run.state, submitted_ms=1), {SUBMITTED})
    start_ms = scheduler.clock.now_ms() - 5000
    await scheduler.stores.flows.change_status(
        StatusChange("f", FlowStatus.RUNNING, (FlowStatus.REGISTERED,), start_at_ms=start_ms)
    )
    scheduler.stores.data.outbox.clear()
    epoch = scheduler.stores.data.flows["f"].schedule_epoch
    assert await examined(scheduler) == PartitionReport(Examined(1, (), ""), (("f", epoch, 5000),), (run.state.name,))
