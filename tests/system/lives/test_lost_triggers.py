"""The trigger service's store alone loses what it was told last, as one master of a cluster does at a failover."""

import asyncio

import pytest

from tests.system.lives.test_lost_ends import run_in_world, work
from tests.system.lives.world import World
from tradewind.flow import Flow
from tradewind.server.partitions import partition_of

WITHIN_S = 5
"""Well before the doctors of this world come round, every 40 s."""


def every_second() -> Flow:
    flow = Flow("f", interval=1)
    flow.node("only", "work", {"seconds": 0})
    return flow


async def cycles(world: World) -> int:
    return len([cycle async for cycle in world.client.list_cycles("f")])


def test_flow_whose_start_is_lost_begins_cycles_within_seconds() -> None:
    async def scenario(world: World) -> None:
        await world.client.register_flow("f", every_second())
        await asyncio.sleep(1)
        restart = world.stores.snapshot("trigger")
        await world.client.start_flow("f")
        await asyncio.sleep(0.5)
        restart()
        assert await world.stores.triggers.find(partition_of("f"), "f") is None
        before = await cycles(world)
        await asyncio.sleep(WITHIN_S)
        assert await cycles(world) >= before + WITHIN_S - 2

    run_in_world(scenario, [work])


@pytest.mark.parametrize("deleted", [False, True])
def test_flow_whose_removal_is_lost_leaves_no_trigger(deleted: bool) -> None:
    async def scenario(world: World) -> None:
        flow = Flow("f", schedule={"event": {"name": "tick"}})
        flow.node("only", "work", {"seconds": 0})
        await world.client.register_flow("f", flow)
        await world.client.start_flow("f")
        await asyncio.sleep(1)
        restart = world.stores.snapshot("trigger")
        await (world.client.delete_flow("f") if deleted else world.client.stop_flow("f"))
        await asyncio.sleep(1)
        restart()
        assert await world.stores.triggers.find(partition_of("f"), "f") is not None
        await asyncio.sleep(WITHIN_S)
        assert await world.stores.triggers.find(partition_of("f"), "f") is None

    run_in_world(scenario, [work])
