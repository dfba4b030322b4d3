"""Which of many flows that have planned times waiting begin their next cycle."""

from collections.abc import Sequence
from itertools import count, islice

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tradewind.scheduler.domain.beginning import BeginAnswer, BeginRequest
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.stores.memory.cycles import MemoryCycles
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.begin_queued import BeginQueued
from tradewind.scheduler.use_cases.definitions import PlannedRun
from tradewind.server.partitions import partition_of

PARTITION = 3
PLANNED = 1_900_000_000_000


async def with_a_cycle_and_a_waiting_time(scheduler: MemoryScheduler, names: list[str]) -> list[PlannedRun]:
    """Register flows, each with a cycle that runs and a planned time that waits; return the runs."""
    for name in names:
        await scheduler.register(name, overlap="queue_all")
        scheduler.stores.data.flows[name].status = FlowStatus.RUNNING
    running = []
    for at_ms in (PLANNED, PLANNED + 60_000):
        due = [
            CycleRequest(name, CycleOrigin.SCHEDULE, due_ms=at_ms, now_ms=at_ms, schedule_epoch=2**60) for name in names
        ]
        running += [each.run for each in await scheduler.begin(due) if each.run is not None]
    return running


async def test_flows_whose_cycles_run_for_long_do_not_keep_others_waiting() -> None:
    scheduler = MemoryScheduler()
    names = list(islice((f"f{at}" for at in count() if partition_of(f"f{at}") == PARTITION), 501))
    running = await with_a_cycle_and_a_waiting_time(scheduler, names)
    assert [run.state.name.flow_id for run in running] == names, "a cycle of each runs, and one of each waits"
    epochs = {PARTITION: 1}
    await scheduler.fold([event(running[-1].state)], epochs)
    begin_queued = BeginQueued(scheduler.begin, scheduler.stores.firings, lambda _flow_id: None)
    assert [(run.state.name.flow_id, run.state.name.cycle) for run in await begin_queued(epochs)] == [(names[-1], 1)]


async def test_the_end_of_a_cycle_costs_the_same_however_many_flows_wait() -> None:
    scheduler = MemoryScheduler()
    names = list(islice((f"f{at}" for at in count() if partition_of(f"f{at}") == PARTITION), 20))
    running = await with_a_cycle_and_a_waiting_time(scheduler, names)
    epochs, tried = {PARTITION: 1}, list[str]()

    async def begin(requests: Sequence[BeginRequest], epochs: Epochs) -> list[BeginAnswer]:
        tried.extend(request.shape.flow_id for request in requests)
        return await MemoryCycles.begin(scheduler.stores.cycles, requests, epochs)

    scheduler.stores.cycles.begin = begin  # type: ignore[method-assign, assignment]
    begin_queued = BeginQueued(scheduler.begin, scheduler.stores.firings, lambda _flow_id: None)
    assert await begin_queued(epochs) == []
    assert sorted(tried) == sorted(names), "nobody knows yet that their cycles are in the way"
    tried.clear()
    await scheduler.fold([event(running[7].state)], epochs)
    assert [run.state.name.flow_id for run in await begin_queued(epochs)] == [names[7]]
    assert await begin_queued(epochs) == []
    assert set(tried) == {names[7]}
