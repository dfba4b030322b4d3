"""Which of many flows that have planned times waiting begin their next cycle."""

from itertools import count, islice

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.begin_queued import BeginQueued
from tradewind.server.partitions import partition_of

PARTITION = 3
PLANNED = 1_900_000_000_000


async def test_flows_whose_cycles_run_for_long_do_not_keep_others_waiting() -> None:
    scheduler = MemoryScheduler()
    names = list(islice((f"f{at}" for at in count() if partition_of(f"f{at}") == PARTITION), 501))
    for name in names:
        await scheduler.register(name, overlap="queue_all")
        scheduler.stores.data.flows[name].status = FlowStatus.RUNNING
    running = []
    for at_ms in (PLANNED, PLANNED + 60_000):
        due = [
            CycleRequest(name, CycleOrigin.SCHEDULE, due_ms=at_ms, now_ms=at_ms, schedule_epoch=2**60) for name in names
        ]
        running += [each.run for each in await scheduler.begin(due) if each.run is not None]
    assert [run.state.name.flow_id for run in running] == names, "a cycle of each runs, and one of each waits"
    epochs = {PARTITION: 1}
    await scheduler.fold([event(running[-1].state)], epochs)
    begin_queued = BeginQueued(scheduler.begin, scheduler.stores.firings, lambda _flow_id: None)
    assert [(run.state.name.flow_id, run.state.name.cycle) for run in await begin_queued(epochs)] == [(names[-1], 1)]
