"""Folding events: one write for each run, which includes its end, whatever others write meanwhile."""

from collections.abc import Sequence

from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tradewind.scheduler.domain.beginning import BeginRequest
from tradewind.scheduler.domain.chain_state import REASON, CycleOrigin, UpdateResult
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.owning import Epochs
from tradewind.server.partitions import partition_of

OWNED: dict[int, int] = {}


async def test_all_events_of_a_run_and_its_end_are_one_write() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=3)
    run = (await scheduler.run()).state
    await scheduler.fold([event(run, "0"), event(run, "1"), event(run, "2", failed=1)], OWNED)
    state = await scheduler.state(run.name)
    assert (state.version, state.status) == (2, CycleStatus.PARTIAL)
    assert state.reason == "1 failed of 3 nodes"
    assert len(scheduler.open_states) == 0


async def test_concurrent_writes_of_others_are_kept() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=2)
    run = (await scheduler.run()).state
    await scheduler.write(structs.replace(run, reason="somebody else's"), {REASON})
    await scheduler.fold([event(run, "0")], OWNED)
    state = await scheduler.state(run.name)
    assert (state.version, state.reason, set(state.components)) == (3, "somebody else's", {"0"})
    assert scheduler.open_states.get(run.name) == state
    await scheduler.fold([event(run, "1")], OWNED)
    assert (await scheduler.state(run.name)).status is CycleStatus.COMPLETED


async def test_repeated_and_foreign_events_write_nothing() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register(nodes=2)
    run = (await scheduler.run()).state
    stranger = event(run, "1", run_id="of another life")
    await scheduler.fold([event(run, "0"), stranger, event(run, "0")], OWNED)
    await scheduler.fold([event(run, "0"), stranger], OWNED)
    state = await scheduler.state(run.name)
    assert (state.version, set(state.components)) == (2, {"0"})
    ghost = event(structs.replace(run, name=run.name._replace(cycle=9)))
    assert await scheduler.fold([ghost], OWNED) == set()


async def test_events_end_the_stored_run_although_its_predecessor_is_cached() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    run = (await scheduler.run()).state
    # The flow is deleted, registered and run again by other replicas.
    flows = scheduler.stores.flows
    await flows.change_status(StatusChange("f", FlowStatus.DELETING, tuple(FlowStatus)))
    while not await flows.remove_step("f"):
        pass
    await scheduler.register()
    request = BeginRequest((await scheduler.planned()).shape, "anew", CycleOrigin.RUN_FLOW, 5000)
    await scheduler.stores.cycles.begin([request])
    await scheduler.fold([event(run), event(run, run_id="anew")], OWNED)
    state = await scheduler.state(run.name)
    assert (state.facts.run_id, state.status) == ("anew", CycleStatus.COMPLETED)


async def test_waiters_receive_the_stored_end_state() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    run = (await scheduler.run()).state
    wait = scheduler.waiters.begin([run])
    scheduler.clock.advance(5)
    await scheduler.fold([event(run)], OWNED)
    assert wait.future.done()
    assert wait.states == {run.name: await scheduler.state(run.name)}


async def test_fold_returns_partitions_that_another_replica_owns() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    run = (await scheduler.run()).state
    partition = partition_of("f")
    old = await scheduler.stores.partitions.acquire(partition)
    await scheduler.stores.partitions.acquire(partition)
    assert await scheduler.fold([event(run)], {partition: old}) == {partition}
    assert (await scheduler.state(run.name)).version == 1


async def test_over_a_thousand_runs_fold_at_once() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    runs = [(await scheduler.run()).state for _ in range(1200)]
    await scheduler.fold([event(run) for run in runs], OWNED)
    states = await scheduler.stores.states.load_many([run.name for run in runs[-90:]])
    assert {state and state.status for state in states} == {CycleStatus.COMPLETED}


async def test_runs_with_large_inputs_fold_in_portions() -> None:
    """Those that are remembered fold with the first portion of the others."""
    scheduler = MemoryScheduler()
    await scheduler.register()
    runs = [(await scheduler.run(inputs_json="x" * 900_000)).state for _ in range(120)]
    scheduler.open_states.clear()
    scheduler.open_states.put(runs[110:])
    update_many, written = scheduler.stores.states.update_many, []

    async def counted(updates: Sequence[RunUpdate], epochs: Epochs) -> list[UpdateResult]:
        written.append(len(updates))
        return await update_many(updates, epochs)

    scheduler.stores.states.update_many = counted  # type: ignore[assignment, method-assign]
    await scheduler.fold([event(run) for run in runs], OWNED)
    assert written == [60, 50, 10]
    assert {(await scheduler.state(run.name)).status for run in runs[-90:]} == {CycleStatus.COMPLETED}
