"""The node task managers' store alone loses the end of a cycle, as a shard does whose replica had lagged behind."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.system.lives.world import World
from tradewind.client import Client
from tradewind.flow import Flow
from tradewind.node_task_manager.domain.component import Component
from tradewind.server.logs import quieten_logging
from tradewind.testing.environment import no_settings
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.testing.virtual.patches import virtual_clock_and_randomness
from tradewind.worker import Node, node

START_NS = 1_800_000_000 * 10**9
HOUR_S = 3600


@node("work")
async def work(seconds: int, outcome: Any = None) -> int:
    await asyncio.sleep(seconds)
    return seconds


def run_in_world(scenario: Callable[[World], Awaitable[None]], nodes: list[Node[..., Any]]) -> None:
    """Run a scenario in a world without other faults."""
    loop = VirtualLoop(START_NS)
    quieten_logging("critical")

    async def main() -> None:
        world = World(loop, random.Random(0), replicas=1)
        async with world.run(nodes):
            await scenario(world)

    with no_settings(), virtual_clock_and_randomness(loop, 0), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


async def open_nodes(client: Client) -> dict[str, str]:
    """Return the status of each node of the only cycle that has not ended."""
    tasks = [task async for task in client.list_node_tasks("f", 0)]
    ended = ("completed", "failed", "terminated", "skipped")
    return {task.node_id: task.status for task in tasks if task.status not in ended}


def report_of(world: World) -> Component:
    """Return the component that is withheld until the others have ended."""
    return world.stores.shards[0]._components["f:0:0", "1"]


def test_stopped_cycle_that_comes_to_life_again_is_stopped_again() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        flow = Flow("f", interval=0)
        flow.node("pause", "delay", {"seconds": 5000})["output"] >> flow.node("order", "work")["seconds"]
        await client.register_flow("f", flow)
        await client.run_flow("f")
        await asyncio.sleep(1)
        restart = world.stores.snapshot("node_task_manager")
        await client.stop_cycle("f", reason="wrong prices")
        await asyncio.sleep(1)
        assert (await client.get_cycle("f", 0)).status == "cancelled"
        restart()
        await asyncio.sleep(1)
        assert await open_nodes(client) == {"pause": "suspended", "order": "registered"}
        # The cleaner takes a step every ten minutes here.
        await asyncio.sleep(700)
        assert await open_nodes(client) == {}
        pause, _ = [task async for task in client.list_node_tasks("f", 0)]
        assert (pause.status, pause.reason) == ("terminated", "wrong prices")

    run_in_world(scenario, [work])


def test_components_that_nobody_would_release_any_more_are_stopped() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        flow = Flow("f", interval=0)
        flow.node("main", "work", {"seconds": 1})
        flow.finally_(flow.node("report", "work", {"seconds": 0}))
        await client.register_flow("f", flow)
        await client.run_flow("f")
        await asyncio.sleep(0.5)
        restart = world.stores.snapshot("node_task_manager")
        await asyncio.sleep(1)
        assert (await client.get_cycle("f", 0)).status == "completed"
        restart()
        await asyncio.sleep(60)
        assert set(await open_nodes(client)) <= {"report"}
        assert report_of(world).withheld
        await asyncio.sleep(2 * HOUR_S + 900)
        report = report_of(world)
        assert report.stop is not None
        assert (report.status, report.skipped) == ("finished", 1)
        assert "the cycle has ended" in report.stop.reason

    run_in_world(scenario, [work])
