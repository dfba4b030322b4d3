"""The store of one service is away or loses its last writes, while the stores of the others do not."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from tests.system.crashing import World, run_in_world
from tests.system.test_killed_schedulers import Ledger
from tradewind.flow import Flow

EVERY_S = 10


@pytest.mark.parametrize("noticed", [False, True])
def test_scheduled_cycles_lost_from_store_are_recovered_and_run_once(noticed: bool) -> None:
    ledger = Ledger()
    flow = Flow("f", schedule={"interval": EVERY_S, "catch_up": "all"}, overlap="allow")
    flow.node("first", "work")["output"] >> flow.node("second", "work")["after"]

    async def scenario(world: World) -> None:
        client = world.client
        await client.register_flow("f", flow)
        await client.start_flow("f")
        await asyncio.sleep(2.5 * EVERY_S)
        restore = world.snapshot()
        await asyncio.sleep(4 * EVERY_S)
        before = [cycle async for cycle in client.list_cycles("f")]
        restore()
        assert len([cycle async for cycle in client.list_cycles("f")]) == len(before) - 4
        if noticed:
            world.notice_loss()
        await asyncio.sleep(12 * EVERY_S)
        await client.pause_flow("f")
        cycles = [cycle async for cycle in client.list_cycles("f")][::-1]
        assert [cycle.cycle for cycle in cycles] == list(range(len(cycles)))
        assert len(cycles) > len(before) + 10
        times = [cycle.planned_time for cycle in cycles if cycle.planned_time is not None]
        assert times == [times[0] + at * timedelta(seconds=EVERY_S) for at in range(len(cycles))]
        assert {cycle.status for cycle in cycles} == {"completed"}
        again = {cycle.cycle: cycle.run_id for cycle in cycles}
        assert [again[cycle.cycle] for cycle in before] == [cycle.run_id for cycle in before]
        assert ledger.ran == Counter(f"f:{cycle.cycle}:{node}" for cycle in cycles for node in ("first", "second"))

    run_in_world(scenario, ledger.nodes, 0)


def test_cycles_that_waited_for_others_run_once_after_store_has_lost_them() -> None:
    ledger = Ledger()
    flow = Flow("f", schedule={"interval": EVERY_S, "catch_up": "all"}, overlap="queue_all")
    flow.node("long", "delay", {"seconds": 2.5 * EVERY_S})["output"] >> flow.node("last", "work")["after"]

    async def scenario(world: World) -> None:
        client = world.client
        await client.register_flow("f", flow)
        await client.start_flow("f")
        await asyncio.sleep(6.2 * EVERY_S)
        restore = world.snapshot()
        await asyncio.sleep(6 * EVERY_S)
        before = [cycle async for cycle in client.list_cycles("f")]
        restore()
        assert len([cycle async for cycle in client.list_cycles("f")]) < len(before)
        await asyncio.sleep(12 * EVERY_S)
        await client.pause_flow("f")
        await asyncio.sleep(30 * EVERY_S)
        cycles = [cycle async for cycle in client.list_cycles("f")][::-1]
        assert {cycle.status for cycle in cycles} == {"completed"}
        again = {cycle.cycle: cycle.run_id for cycle in cycles}
        assert [again[cycle.cycle] for cycle in before] == [cycle.run_id for cycle in before]
        assert ledger.ran == Counter(f"f:{cycle.cycle}:last" for cycle in cycles)

    run_in_world(scenario, ledger.nodes, 0)


def test_events_and_planned_times_lost_from_store_of_scheduler_alone_begin_again() -> None:
    ledger = Ledger()
    at_times = Flow("f", schedule={"interval": EVERY_S, "catch_up": "none"}, overlap="allow")
    at_times.node("only", "work")
    on_events = Flow("g", schedule={"event": {"name": "order"}}, overlap="allow")
    on_events.node("only", "work")

    async def scenario(world: World) -> None:
        client = world.client
        for flow in (at_times, on_events):
            await client.register_flow(flow.flow_id, flow)
            await client.start_flow(flow.flow_id)
        await asyncio.sleep(2.5 * EVERY_S)
        await client.publish_event("order", {"size": 1}, event_id="first")
        await asyncio.sleep(1)
        restore = world.snapshot(triggers=False)
        await client.publish_event("order", {"size": 2}, event_id="second")
        await asyncio.sleep(0.6 * EVERY_S)
        before = {flow_id: [cycle async for cycle in client.list_cycles(flow_id)] for flow_id in ("f", "g")}
        restore()
        world.notice_loss()
        await asyncio.sleep(5 * EVERY_S)
        await client.pause_flow("f")
        cycles = {flow_id: [cycle async for cycle in client.list_cycles(flow_id)][::-1] for flow_id in ("f", "g")}
        assert [cycle.inputs["event"]["id"] for cycle in cycles["g"]] == ["first", "second"]
        times = [cycle.planned_time for cycle in cycles["f"] if cycle.planned_time is not None]
        assert times == [times[0] + at * timedelta(seconds=EVERY_S) for at in range(len(times))]
        for flow_id, known in before.items():
            again = {(cycle.cycle, cycle.run_id) for cycle in cycles[flow_id]}
            assert {(cycle.cycle, cycle.run_id) for cycle in known} <= again
        assert ledger.ran == Counter(f"{each}:{cycle.cycle}:only" for each in cycles for cycle in cycles[each])

    run_in_world(scenario, ledger.nodes, 0)


def test_planned_times_survive_outage_of_scheduler_store() -> None:
    ledger = Ledger()
    flow = Flow("f", schedule={"interval": EVERY_S, "catch_up": "all"}, overlap="allow")
    flow.node("only", "work")

    async def scenario(world: World) -> None:
        client = world.client
        await client.register_flow("f", flow)
        await client.start_flow("f")
        await asyncio.sleep(2.5 * EVERY_S)
        world.scheduler.store_unavailable = True
        await asyncio.sleep(30 * EVERY_S)
        world.scheduler.store_unavailable = False
        await asyncio.sleep(5 * EVERY_S)
        cycles = [cycle async for cycle in client.list_cycles("f")][::-1]
        times = [cycle.planned_time for cycle in cycles if cycle.planned_time is not None]
        assert times == [times[0] + at * timedelta(seconds=EVERY_S) for at in range(len(cycles))]
        assert len(cycles) > 35

    run_in_world(scenario, ledger.nodes, 0)
