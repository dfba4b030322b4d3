"""The store of one service is away or loses its last writes, while the stores of the others do not."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.crashing import START_NS, World, run_in_world
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


def test_cycles_of_a_backfill_that_the_store_has_lost_run_once() -> None:
    ledger = Ledger()
    flow = Flow("f", interval=EVERY_S)
    flow.node("pause", "delay", {"seconds": 2})["output"] >> flow.node("only", "work")["after"]

    async def scenario(world: World) -> None:
        client = world.client
        await client.register_flow("f", flow)
        end = datetime.fromtimestamp(START_NS / 1e9, UTC)
        await client.backfill_flow("f", end - timedelta(seconds=4 * EVERY_S), end)
        await asyncio.sleep(3)
        restore = world.snapshot(triggers=False)
        await asyncio.sleep(10)
        before = [(cycle.cycle, cycle.run_id) async for cycle in client.list_cycles("f")]
        restore()
        world.notice_loss()
        assert 0 < len([cycle async for cycle in client.list_cycles("f")]) < len(before) == 4
        await asyncio.sleep(600)
        assert [(cycle.cycle, cycle.run_id) async for cycle in client.list_cycles("f")] == before
        assert (await client.get_backfill("f", 1)).completed == 4
        assert ledger.ran == Counter(f"f:{at}:only" for at in range(4))

    run_in_world(scenario, ledger.nodes, 0)


def test_rerun_that_the_store_has_lost_is_the_same_run_when_it_is_asked_for_again() -> None:
    ledger = Ledger("only")
    flow = Flow("f", interval=0)
    flow.node("only", "work")

    async def scenario(world: World) -> None:
        client = world.client
        await client.register_flow("f", flow)
        assert (await (await client.run_flow("f")).wait(60)).status == "failed"
        ledger.failing.clear()
        restore = world.snapshot(triggers=False)
        first = await (await client.rerun_cycle("f")).wait(60)
        restore()
        world.notice_loss()
        again = await (await client.rerun_cycle("f", reason="once more")).wait(60)
        assert (again.run, again.run_id, again.status) == (1, first.run_id, "completed")
        assert ledger.ran["f:0:only"] == 2

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
