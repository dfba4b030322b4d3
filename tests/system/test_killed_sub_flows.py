"""A scheduler is killed after each of its writes and each answer that it gets, while a flow runs another."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.system.mortal import World
from tests.system.test_killed_schedulers import Ledger, killed_at_each_step
from tradewind.client import CycleStatus
from tradewind.flow import Flow

Scenario = Callable[[World], Awaitable[None]]


async def registered(world: World, node_type: str) -> None:
    """Register `above`, which runs `below`, whose only node is of this type."""
    below = Flow("below", "1h")
    below.node("main", node_type)
    above = Flow("above", "1h")
    above.sub_flow("sub", below)["output"] >> above.node("after", "delay", {"seconds": 1})["input"]
    await world.client.register_flow("below", below)
    await world.client.register_flow("above", above)


async def cycles_below(world: World) -> list[CycleStatus]:
    return [cycle.status async for cycle in world.client.list_cycles("below")]


def test_sub_flow_cycle_runs_once_and_returns_outputs() -> None:
    def begin() -> tuple[Ledger, Scenario]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            await registered(world, "work")
            world.life.counting = True
            ended = await (await world.client.run_flow("above")).wait()
            assert (ended.status, ended.cycle) == (CycleStatus.COMPLETED, 0)
            assert await cycles_below(world) == [CycleStatus.COMPLETED]
            assert ledger.ran == {"below:0:main": 1}
            sub = await world.client.get_node_task("above:0:0:sub")
            assert (sub.attempt, sub.outputs) == (1, {"output": {"main": {"output": 1}}})

        return ledger, scenario

    killed_at_each_step(begin, 12)


def test_stop_of_parent_reaches_sub_flow_cycle() -> None:
    def begin() -> tuple[Ledger, Scenario]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            await registered(world, "long")
            handle = await world.client.run_flow("above")
            await asyncio.sleep(60)
            world.life.counting = True
            await world.client.stop_cycle("above", reason="enough")
            assert (await handle.wait()).status is CycleStatus.CANCELLED
            assert (await world.client.cycle("below", 0).wait()).status is CycleStatus.CANCELLED
            assert ledger.ran == {"below:0:main": 1}

        return ledger, scenario

    killed_at_each_step(begin, 6)


def test_sub_flow_failure_is_reported_once() -> None:
    def begin() -> tuple[Ledger, Scenario]:
        ledger = Ledger("main")

        async def scenario(world: World) -> None:
            await registered(world, "work")
            world.life.counting = True
            ended = await (await world.client.run_flow("above")).wait()
            assert ended.status is CycleStatus.FAILED
            assert await cycles_below(world) == [CycleStatus.FAILED]
            sub = await world.client.get_node_task("above:0:0:sub")
            error: Any = sub.error
            assert (error.code, sub.failures) == ("SUB_FLOW_FAILED", 0)

        return ledger, scenario

    killed_at_each_step(begin, 12)
