"""Which states of runs a watcher receives, and how they are read."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tests.unit.scheduler.test_update_state import FACTS
from tests.waiting import until
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.rpc.watch_mapping import event, last_seen
from tradewind.scheduler.use_cases import watch_flows, watch_pace
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.watch_flows import WatchFlows, _Watch
from tradewind.scheduler.use_cases.watch_pace import WatchPace
from tradewind.server.faults import Unavailable


def test_watcher_receives_another_end_of_a_run_whose_end_was_lost() -> None:
    """The store may have lost the end that was reported, and gives its version out again."""
    running = ChainState(RunName("f", 0), FACTS, 1)
    cancelled = structs.replace(running, status=CycleStatus.CANCELLED, version=3, end_ms=1000)
    failed = structs.replace(running, status=CycleStatus.FAILED, version=3, end_ms=2000)
    watch = _Watch({"f"}, None)
    watch.begin([])
    received = []
    for state in (running, cancelled, cancelled, running, failed, failed):
        watch.receive("f", state)
        received += watch.pop()
    assert received == [running, cancelled, failed]


async def test_resumed_watch_receives_another_end_of_the_last_run_seen() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register("f-1")
    run = (await scheduler.run("f-1")).state.name
    record = scheduler.stores.data.flows["f-1"].runs[run]
    running = record.state
    cancelled = structs.replace(running, status=CycleStatus.CANCELLED, version=2, end_ms=1000)
    failed = structs.replace(running, status=CycleStatus.FAILED, version=2, end_ms=2000)
    stores = scheduler.stores
    read: Any = None
    watch = WatchFlows(stores.flows, stores.cycles, read, ChangeHub(stores.changes, stores.cycles, stores.states))

    async def first_after(seen: ChainState) -> ChainState | None:
        """Return what a watch that goes on after this state yields at once."""
        request = pb2.WatchFlowRequest(flow_ids=["f-1"], after_event_ids=[event(seen).event_id])
        found = await watch._since(last_seen(request)["f-1"])
        return found[0] if found else None

    for on_record, seen, expected in (
        (running, running, None),
        (cancelled, running, cancelled),
        (cancelled, cancelled, None),
        (failed, cancelled, failed),
        (failed, structs.replace(running, version=2), failed),
    ):
        record.state = on_record
        assert await first_after(seen) == expected


async def test_watcher_remembers_a_bounded_number_of_runs_the_newest_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_flows, "_REMEMBERED", 4)
    scheduler = MemoryScheduler()
    await scheduler.register("f-1")
    states = [(await scheduler.run("f-1")).state for _ in range(20)]
    watch = _Watch({"f-1"}, None)
    watch.begin(states)
    assert watch.pop() == states
    assert len(watch._ranks) <= 4
    for state in states[-2:]:
        watch.receive("f-1", state)
    assert not watch.has_changes


async def test_many_flows_are_read_twenty_at_a_time() -> None:
    scheduler = MemoryScheduler()
    names = [f"f{at:02}" for at in range(45)]
    for name in names:
        await scheduler.register(name)
        await scheduler.run(name)
    stores = scheduler.stores
    find, newest = stores.flows.find, stores.cycles.newest
    read: list[int] = []
    waiting: list[str] = []
    most = 0

    async def found(flow_ids: Sequence[str]) -> list[FlowRecord | None]:
        read.append(len(flow_ids))
        return await find(flow_ids)

    async def slowly(flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        nonlocal most
        waiting.append(flow_id)
        most = max(most, len(waiting))
        await asyncio.sleep(0)
        waiting.remove(flow_id)
        return await newest(flow_id, below, limit)

    stores.flows.find = found  # type: ignore[method-assign]
    stores.cycles.newest = slowly  # type: ignore[method-assign]
    nobody: Any = None
    watch = WatchFlows(stores.flows, stores.cycles, nobody, ChangeHub(stores.changes, stores.cycles, stores.states))
    changes = watch(names, None, {})
    first = await anext(changes)
    await changes.aclose()  # type: ignore[attr-defined]
    assert [state.name.flow_id for state in first] == names
    assert (read, most) == ([20, 20, 5], 20)


async def test_changes_that_come_faster_than_messages_may_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_pace, "BURST", 1)
    monkeypatch.setattr(watch_pace, "MESSAGES_A_SECOND", 5)
    scheduler = MemoryScheduler()
    await scheduler.register("f-1")
    first = (await scheduler.run("f-1")).state
    stores = scheduler.stores
    nobody: Any = None
    hub = ChangeHub(stores.changes, stores.cycles, stores.states)
    watch = WatchFlows(stores.flows, stores.cycles, nobody, hub)
    changes = watch(["f-1"], None, {})
    assert await anext(changes) == [first]
    later = [structs.replace(first, version=version) for version in (2, 3, 4)]
    following = asyncio.ensure_future(anext(changes))
    for state in later[:2]:
        hub._publish(state)
        for _ in range(10):
            await asyncio.sleep(0)
    assert await following == later[:2]
    # A server that drains lets nobody wait for the next message.
    monkeypatch.setattr(watch_pace, "MESSAGES_A_SECOND", 0.001)
    following = asyncio.ensure_future(anext(changes))
    hub._publish(later[2])
    for _ in range(10):
        await asyncio.sleep(0)
    watch.drain()
    assert await following == later[2:]
    with pytest.raises(Unavailable):
        await anext(changes)
    await hub.stop()


async def test_a_quiet_second_allows_a_burst_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = WatchPace()
    at_once = 0
    while not pace.next_in():
        at_once += 1
    assert watch_pace.BURST <= at_once <= 2 * watch_pace.BURST
    # The clock stands still: a machine that is busy for a moment would make a wait shorter than the one before.
    now_s = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    waits = [pace.next_in() for _ in range(100)]
    assert waits == sorted(waits)
    assert waits[-1] > 0.05


async def test_a_watch_of_several_flows_rests_after_one_of_them_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(watch: _Watch) -> bool:
        nonlocal looks
        looks += 1
        return bool(watch._backlog)

    monkeypatch.setattr(_Watch, "has_changes", property(counted))
    scheduler = MemoryScheduler()
    for flow_id in ("f-1", "f-2"):
        await scheduler.register(flow_id)
    stores = scheduler.stores
    nobody: Any = None
    hub = ChangeHub(stores.changes, stores.cycles, stores.states)
    changes = WatchFlows(stores.flows, stores.cycles, nobody, hub)(["f-1", "f-2"], None, {})
    following = asyncio.ensure_future(anext(changes))
    await until(lambda: looks, "the watch has begun")
    hub._notify("f-1", None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert looks <= 3
    state = (await scheduler.run("f-2")).state
    hub._publish(state)
    assert await following == [state]
    await changes.aclose()  # type: ignore[attr-defined]
    await hub.stop()
