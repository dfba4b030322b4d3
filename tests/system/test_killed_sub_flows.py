"""A scheduler is killed after each of its writes and each answer that it gets, while a flow runs another."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.system.crashing import World
from tests.system.test_killed_schedulers import Ledger, crash_at_each_step
from tradewind.client import CycleStatus
from tradewind.flow import Flow

Scenario = Callable[[World], Awaitable[None]]


async def register_flows(world: World, node_type: str) -> None:
    """Register `parent`, which runs `child`, whose only node is of this type."""
    child = Flow("child", "1h")
    child.node("main", node_type)
    parent = Flow("parent", "1h")
    parent.sub_flow("sub", child)["output"] >> parent.node("after", "delay", {"seconds": 1})["input"]
    await world.client.register_flow("child", child)
    await world.client.register_flow("parent", parent)


async def sub_flow_cycles(world: World) -> list[CycleStatus]:
    return [cycle.status async for cycle in world.client.list_cycles("child")]


def test_sub_flow_cycle_runs_once_and_returns_outputs() -> None:
    def begin() -> tuple[Ledger, Scenario]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            await register_flows(world, "work")
            world.scheduler.counting = True
            ended = await (await world.client.run_flow("parent")).wait()
            assert (ended.status, ended.cycle) == (CycleStatus.COMPLETED, 0)
            assert await sub_flow_cycles(world) == [CycleStatus.COMPLETED]
            assert ledger.ran == {"child:0:main": 1}
            sub = await world.client.get_node_task("parent:0:0:sub")
            assert (sub.attempt, sub.outputs) == (1, {"output": {"main": {"output": 1}}})

        return ledger, scenario

    crash_at_each_step(begin, 12)


def test_stop_of_parent_reaches_sub_flow_cycle() -> None:
    def begin() -> tuple[Ledger, Scenario]:
        ledger = Ledger()

        async def scenario(world: World) -> None:
            await register_flows(world, "long")
            handle = await world.client.run_flow("parent")
            await asyncio.sleep(60)
            world.scheduler.counting = True
            await world.client.stop_cycle("parent", reason="enough")
            assert (await handle.wait()).status is CycleStatus.CANCELLED
            assert (await world.client.cycle("child", 0).wait()).status is CycleStatus.CANCELLED
            assert ledger.ran == {"child:0:main": 1}

        return ledger, scenario

    crash_at_each_step(begin, 6)


def test_sub_flow_failure_is_reported_once() -> None:
    def begin() -> tuple[Ledger, Scenario]:
        ledger = Ledger("main")

        async def scenario(world: World) -> None:
            await register_flows(world, "work")
            world.scheduler.counting = True
            ended = await (await world.client.run_flow("parent")).wait()
            assert ended.status is CycleStatus.FAILED
            assert await sub_flow_cycles(world) == [CycleStatus.FAILED]
            sub = await world.client.get_node_task("parent:0:0:sub")
            error: Any = sub.error
            assert (error.code, sub.failures) == ("SUB_FLOW_FAILED", 1)

        return ledger, scenario

    crash_at_each_step(begin, 12)
