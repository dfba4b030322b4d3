"""The change hub: what listeners receive, even after messages were missed."""

import time

from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, event
from tests.waiting import until
from tradewind.scheduler.domain.chain_state import REASON, ChainState
from tradewind.scheduler.domain.flow_record import StatusChange
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.server.partitions import partition_of


class Listener:
    """Collects the changes that it receives."""

    def __init__(self) -> None:
        self.received: list[tuple[str, ChainState | None]] = []

    def __call__(self, flow_id: str, state: ChainState | None) -> None:
        self.received.append((flow_id, state))


def bench() -> tuple[MemoryScheduler, ChangeHub, Listener]:
    """Return a scheduler, the hub of its changes and a listener."""
    scheduler = MemoryScheduler()
    hub = ChangeHub(scheduler.stores.changes, scheduler.stores.cycles, scheduler.stores.states)
    return scheduler, hub, Listener()


async def test_listener_receives_changes_of_its_flow_only() -> None:
    scheduler, hub, listener = bench()
    for flow_id in ("f", "g"):
        await scheduler.register(flow_id)
    await hub.listen("f", listener)
    run, other = (await scheduler.run("f")).state, (await scheduler.run("g")).state
    await scheduler.fold([event(run), event(other)], {})
    assert [(flow_id, state and state.version) for flow_id, state in listener.received] == [("f", 1), ("f", 2)]
    hub.leave("f", listener)
    await scheduler.run("f")
    assert len(listener.received) == 2
    assert not scheduler.stores.data.listeners[partition_of("f")]


async def test_runs_of_a_flow_that_nobody_listens_to_are_not_kept() -> None:
    scheduler, hub, listener = bench()
    beside = next(name for at in range(1000) if partition_of(name := f"g{at}") == partition_of("f"))
    for flow_id in ("f", beside):
        await scheduler.register(flow_id)
    await hub.listen("f", listener)
    await scheduler.run(beside)
    assert listener.received == []
    assert hub._known == {}


async def test_listener_added_twice_is_notified_once_and_stays_until_removed_twice() -> None:
    scheduler, hub, listener = bench()
    await scheduler.register()
    await hub.listen("f", listener)
    await hub.listen("f", listener)
    hub.leave("f", listener)
    await scheduler.run()
    assert len(listener.received) == 1
    hub.leave("f", listener)
    hub.leave("f", listener)
    assert not scheduler.stores.data.listeners[partition_of("f")]


async def test_missed_changes_are_read_after_a_gap() -> None:
    scheduler, hub, listener = bench()
    await scheduler.register()
    await hub.listen("f", listener)
    first = (await scheduler.run()).state
    listeners = scheduler.stores.data.listeners.pop(partition_of("f"))
    await scheduler.write(structs.replace(first, reason="missed"), {REASON})
    second = (await scheduler.run()).state
    scheduler.stores.data.listeners[partition_of("f")] = listeners
    assert len(listener.received) == 1
    hub._resync(partition_of("f"))
    await until(lambda: len(listener.received) == 3, "both are published")
    assert {(state.name.cycle, state.version) for _, state in listener.received[1:] if state} == {
        (first.name.cycle, 2),
        (second.name.cycle, 1),
    }
    await hub.stop()


async def test_listener_is_notified_of_the_deletion_of_its_flow() -> None:
    scheduler, hub, listener = bench()
    await scheduler.register()
    await hub.listen("f", listener)
    await scheduler.stores.flows.change_status(StatusChange("f", FlowStatus.DELETING, (FlowStatus.REGISTERED,)))
    await scheduler.stores.flows.remove_step("f")
    assert listener.received == [("f", None)]


async def test_leaving_a_flow_does_not_scan_runs_of_other_flows() -> None:
    scheduler, hub, listener = bench()
    await scheduler.register()
    run = (await scheduler.run()).state
    others = [f"g{at}" for at in range(1000)]
    for flow_id in ("f", *others):
        await hub.listen(flow_id, listener)
    hub.add_known([structs.replace(run, name=RunName("f", cycle)) for cycle in range(50_000)])
    began = time.process_time()
    for flow_id in others:
        hub.leave(flow_id, listener)
    assert time.process_time() - began < 1
