"""Which runs get the same id when they begin again after a store has forgotten them."""

from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.use_cases.begin_cycles import CycleRequest
from tradewind.scheduler.use_cases.begin_queued import BeginQueued
from tradewind.server.partitions import partition_of

PLANNED = 1_800_000_000_000
DUE = CycleRequest("f", CycleOrigin.SCHEDULE, due_ms=PLANNED, now_ms=PLANNED, schedule_epoch=2**60)
CHILD = CycleRequest("f", CycleOrigin.SUB_FLOW, parent=Parent(RunName("above", 1), "r0", "sub", 1))


async def run_id(*wishes: CycleRequest, nodes: int = 1) -> list[str]:
    """Return the ids of the runs that a scheduler begins when its store knows nothing but the flow."""
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=nodes)
    scheduler.stores.data.flows["f"].status = FlowStatus.RUNNING
    return [begun.answer.run_id for begun in await scheduler.begin(wishes)]


async def test_run_id_is_the_same_for_a_planned_time_or_a_node_attempt() -> None:
    assert await run_id(DUE, CHILD) == await run_id(DUE, CHILD)
    ids = await run_id(
        DUE,
        structs.replace(DUE, due_ms=PLANNED + 60_000, now_ms=PLANNED + 60_000),
        structs.replace(DUE, schedule_epoch=2**60 + 1),
        CHILD,
        structs.replace(CHILD, parent=Parent(RunName("above", 1), "r0", "sub", 2)),
        structs.replace(CHILD, parent=Parent(RunName("above", 1), "r1", "sub", 1)),
    )
    assert len(set(ids)) == 5, "the same planned time under another schedule was settled before"
    assert all(len(each) == 20 for each in ids if each)


async def test_run_id_differs_for_another_definition() -> None:
    assert await run_id(DUE, nodes=1) != await run_id(DUE, nodes=2)


async def test_run_id_of_a_manual_run_is_unique() -> None:
    assert await run_id(CycleRequest("f")) != await run_id(CycleRequest("f"))


async def test_planned_time_that_waits_for_a_cycle_keeps_its_run_id() -> None:
    async def ids() -> list[str]:
        scheduler = MemoryScheduler()
        await scheduler.register(overlap="queue_all")
        scheduler.stores.data.flows["f"].status = FlowStatus.RUNNING
        times = [PLANNED + at * 60_000 for at in range(3)]
        first, *waiting = await scheduler.begin([structs.replace(DUE, due_ms=at, now_ms=at) for at in times])
        assert first.run is not None
        assert [each.run for each in waiting] == [None, None]
        begin_queued = BeginQueued(scheduler.begin, scheduler.stores.firings, lambda _flow_id: None)
        epochs = {partition_of("f"): 1}
        runs = [first.run]
        for run in runs:
            await scheduler.fold([event(run.state)], epochs)
            runs += await begin_queued(epochs)
        return [run.state.facts.run_id for run in runs]

    found = await ids()
    assert len(set(found)) == 3
    assert await ids() == found
