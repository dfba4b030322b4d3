"""Processes are killed while a flow runs another; the parent's node ends once, with the result of the child."""

import asyncio
from pathlib import Path
from typing import Any

from tests.system.replicas.cluster import Cluster
from tests.system.replicas.test_replicas_die import PATIENCE_S, running
from tests.waiting import until
from tradewind.client import Client, CycleStatus, SubFlowCycle
from tradewind.flow import Flow

KILLED = ("scheduler-0", "node_task_manager-0", "worker-0")


def flows(child_id: str, failures: int) -> tuple[Flow, Flow]:
    """Return a flow that waits for a file and then fails `failures` times, and a flow that runs it."""
    child = Flow(child_id, "1h")
    child.node("main", "gated")["output"] >> child.node("last", "shaky", {"failures": failures})["value"]
    parent = Flow(f"over-{child_id}", "1h")
    parent.sub_flow("sub", child)
    return child, parent


async def run_through_kill(cluster: Cluster, client: Client, child_id: str, cycle: int, *killed: str) -> CycleStatus:
    """Run the parent, kill processes while the child's cycle waits, let it go on, and return the parent's status."""
    gate = cluster.home / f"{child_id}-{cycle}"
    handle = await client.run_flow(f"over-{child_id}", {"gate": str(gate)})
    main = f"{child_id}:{cycle}:0:main"
    await until(lambda: cluster.recorded("begun")[main] == 1, f"{main} runs", timeout=PATIENCE_S)
    await asyncio.gather(*map(cluster.kill, killed))
    gate.touch()
    await asyncio.gather(*map(cluster.start_process, killed))
    return (await handle.wait(PATIENCE_S)).status


async def check_children_ran_once(cluster: Cluster, client: Client, child_id: str, times: int) -> list[Any]:
    """Check that each cycle of the parent has one of the child, whose nodes ran once; return the parent's nodes."""
    cycles = [cycle async for cycle in client.list_cycles(child_id)][::-1]
    assert [str(cycle.parent) for cycle in cycles] == [f"over-{child_id}:{at}:0:sub" for at in range(times)]
    assert [cluster.recorded("done")[f"{child_id}:{at}:0:main"] for at in range(times)] == [1] * times
    nodes = [await client.get_node_task(f"over-{child_id}:{at}:0:sub") for at in range(times)]
    assert [(node.attempt, node.sub_flow) for node in nodes] == [(1, SubFlowCycle(child_id, at)) for at in range(times)]
    return nodes


async def test_sub_flow_node_ends_once_whichever_process_is_killed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    async with running(cluster), cluster.client() as client:
        for child_id, failures in (("good", 0), ("bad", 9)):
            for flow in flows(child_id, failures):
                await client.register_flow(flow.flow_id, flow)
        for at, killed in enumerate(KILLED):
            assert await run_through_kill(cluster, client, "good", at, killed) is CycleStatus.COMPLETED, killed
        assert await run_through_kill(cluster, client, "bad", 0, *KILLED) is CycleStatus.FAILED
        for node in await check_children_ran_once(cluster, client, "good", len(KILLED)):
            assert node.outputs == {"output": {"last": {"output": 1}}}
        (node,) = await check_children_ran_once(cluster, client, "bad", 1)
        assert node.error.code == "SUB_FLOW_FAILED"
