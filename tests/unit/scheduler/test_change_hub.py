"""The change hub: what listeners hear, even after messages were missed."""

import time

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tests.waiting import until
from tradewind.scheduler.domain.chain_state import REASON, ChainState
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.server.partitions import partition_of


class Ear:
    """Collects what a listener hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ChainState | None]] = []

    def __call__(self, flow_id: str, state: ChainState | None) -> None:
        self.heard.append((flow_id, state))


def bench() -> tuple[MemoryScheduler, ChangeHub, Ear]:
    """Return a scheduler, the hub of its changes and a listener."""
    scheduler = MemoryScheduler()
    hub = ChangeHub(scheduler.stores.changes, scheduler.stores.cycles, scheduler.stores.states)
    return scheduler, hub, Ear()


async def test_listeners_hear_of_their_flow_alone() -> None:
    scheduler, hub, ear = bench()
    for flow_id in ("f", "g"):
        await scheduler.register(flow_id)
    await hub.listen("f", ear)
    run, other = (await scheduler.run("f")).state, (await scheduler.run("g")).state
    await scheduler.fold([event(run), event(other)], {})
    assert [(flow_id, state and state.version) for flow_id, state in ear.heard] == [("f", 1), ("f", 2)]
    hub.leave("f", ear)
    await scheduler.run("f")
    assert len(ear.heard) == 2
    assert not scheduler.stores.data.listeners[partition_of("f")]


async def test_one_that_listens_for_several_hears_once_until_the_last_has_left() -> None:
    scheduler, hub, ear = bench()
    await scheduler.register()
    await hub.listen("f", ear)
    await hub.listen("f", ear)
    hub.leave("f", ear)
    await scheduler.run()
    assert len(ear.heard) == 1
    hub.leave("f", ear)
    hub.leave("f", ear)
    assert not scheduler.stores.data.listeners[partition_of("f")]


async def test_after_a_gap_what_was_missed_is_read() -> None:
    scheduler, hub, ear = bench()
    await scheduler.register()
    await hub.listen("f", ear)
    first = (await scheduler.run()).state
    listeners = scheduler.stores.data.listeners.pop(partition_of("f"))
    await scheduler.stores.states.try_update(first._replace(reason="missed"), {REASON})
    second = (await scheduler.run()).state
    scheduler.stores.data.listeners[partition_of("f")] = listeners
    assert len(ear.heard) == 1
    hub._resync(partition_of("f"))
    await until(lambda: len(ear.heard) == 3, "both are told")
    assert {(state.name.cycle, state.version) for _, state in ear.heard[1:] if state} == {
        (first.name.cycle, 2),
        (second.name.cycle, 1),
    }
    await hub.stop()


async def test_the_end_of_a_flow_is_heard() -> None:
    scheduler, hub, ear = bench()
    await scheduler.register()
    await hub.listen("f", ear)
    await scheduler.stores.flows.change_status(StatusChange("f", FlowStatus.DELETING, (FlowStatus.REGISTERED,)))
    await scheduler.stores.flows.remove_step("f")
    assert ear.heard == [("f", None)]


async def test_who_leaves_a_flow_does_not_look_through_the_runs_of_others() -> None:
    scheduler, hub, ear = bench()
    await scheduler.register()
    run = (await scheduler.run()).state
    others = [f"g{at}" for at in range(1000)]
    for flow_id in ("f", *others):
        await hub.listen(flow_id, ear)
    hub.seen([run._replace(name=RunName("f", cycle)) for cycle in range(50_000)])
    began = time.process_time()
    for flow_id in others:
        hub.leave(flow_id, ear)
    assert time.process_time() - began < 1
