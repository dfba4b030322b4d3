"""Schedulers and node task managers are killed, one after the other, while flows run on schedule."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from tests.system.replicas.cluster import Cluster
from tests.system.replicas.failover import FailoverStore
from tests.waiting import until
from tradewind.client import Client, CycleRecord
from tradewind.flow import Flow

EVERY = timedelta(milliseconds=200)
PATIENCE_S = 120.0
FLOWS = [f"f{at}" for at in range(4)]


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Start a cluster, and end it afterwards."""
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()


def flow(name: str) -> Flow:
    """Return a flow of two steps, the second one eager in every other flow; missed planned times all fire late."""
    schedule = {"interval": EVERY.total_seconds(), "catch_up": "all"}
    flow = Flow(name, schedule=schedule, overlap="allow", keep_cycles=10_000)
    second = "eager_step" if name in FLOWS[::2] else "step"
    flow.node("first", "step")["output"] >> flow.node("second", second)["value"]
    return flow


async def wait_for_more_nodes(cluster: Cluster) -> None:
    """Wait until twenty more nodes are done."""
    before = cluster.recorded("done").total()
    await until(lambda: cluster.recorded("done").total() > before + 20, "cycles go on", timeout=PATIENCE_S)


async def start_flows(client: Client) -> None:
    """Start all flows."""
    for name in FLOWS:
        await client.register_flow(name, flow(name))
        await client.start_flow(name)


async def test_no_cycle_is_missing_or_repeated_whichever_process_is_killed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, schedulers=2, node_task_managers=2, workers=2)
    async with running(cluster), cluster.client() as client:
        await start_flows(client)
        for killed in ("scheduler-0", "node_task_manager-0", "trigger-0", "scheduler-1", "node_task_manager-1"):
            await wait_for_more_nodes(cluster)
            await cluster.kill(killed)
            await cluster.start_process(killed)
        await wait_for_more_nodes(cluster)
        await cluster.restart_store()
        await wait_for_more_nodes(cluster)
        ran = await pause_and_check_cycles(client)
    done = cluster.recorded("done")
    assert set(done) == ran
    assert done.total() == len(ran)


async def test_flows_continue_after_sentinel_failover(tmp_path: Path) -> None:
    """What the master had not passed on when it died may run again; nothing is missing in the end."""
    store = FailoverStore(tmp_path)
    cluster = Cluster(tmp_path, workers=2, store=store)
    async with running(cluster), cluster.client() as client:
        await start_flows(client)
        await wait_for_more_nodes(cluster)
        await store.kill_master()
        await wait_for_more_nodes(cluster)
        assert await pause_and_check_cycles(client) == set(cluster.recorded("done"))


async def pause_and_check_cycles(client: Client) -> set[str]:
    """Pause the flows, wait until their cycles have ended, and return the node tasks.

    Asserts that the cycles are numbered 0, 1, 2, ... and belong to consecutive planned times of the grid.
    """
    ran: set[str] = set()
    for name in FLOWS:
        await client.pause_flow(name)
    for name in FLOWS:
        cycles = await wait_for_cycles(client, name)
        assert [each.cycle for each in cycles] == list(range(len(cycles)))
        assert {each.status for each in cycles} == {"completed"}
        times = [each.planned_time for each in cycles if each.planned_time is not None]
        assert times == [times[0] + at * EVERY for at in range(len(cycles))]
        ran |= {f"{name}:{each.cycle}:0:{node}" for each in cycles for node in ("first", "second")}
    return ran


async def wait_for_cycles(client: Client, name: str) -> list[CycleRecord]:
    """Return all cycles of a flow, the oldest first, once none of them is running."""
    found: list[CycleRecord] = []

    async def all_ended() -> bool:
        await asyncio.sleep(0.2)
        found[:] = [each async for each in client.list_cycles(name)][::-1]
        return not any(each.status == "running" for each in found)

    await until(all_ended, f"all cycles of {name} have ended", timeout=PATIENCE_S)
    return found
