"""Nodes in processes and threads under a whole stack: they run and crash, and stopping them always ends."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system.worker import nodes
from tests.waiting import until
from tradewind.client import Client, NodeTaskStatus
from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import Node

PATIENCE_S = 30


@pytest_asyncio.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client of a stack in which nodes have half a second to stop."""
    monkeypatch.setenv("TRADEWIND_NODE_TASK_MANAGER_STOP_GRACE_SECONDS", "0.5")
    async with running_stack([value for value in vars(nodes).values() if isinstance(value, Node)]) as client:
        yield client


def single(node_type: str, **config: object) -> Flow:
    """Return a flow of one node."""
    flow = Flow(node_type, "1h")
    flow.node("only", node_type, config)
    return flow


def has_ended(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_process_node_runs_in_flow(client: Client) -> None:
    flow = Flow("sums", "1h")
    flow.node("squares", "squares", {"count": 5})["sum"] >> flow.node("double", "double")["sum"]
    await client.register_flow("sums", flow)
    run = await client.run_flow("sums")

    assert await run.result(PATIENCE_S) == {"double": {"doubled": 60}}
    described = await run.describe()
    assert "adding 5 squares" in [line.message for line in described.logs]


async def test_crashed_process_node_reports_its_signal(client: Client) -> None:
    await client.register_flow("crashes", single("crashes"))
    run = await client.run_flow("crashes", wait=PATIENCE_S)

    task = await client.get_node_task(f"crashes:{run.cycle}:0:only")
    assert task.status is NodeTaskStatus.FAILED
    assert task.error is not None
    assert task.error.code == "PROCESS_DIED"
    assert "SIGKILL (9)" in task.error.message


@pytest.mark.parametrize("node_type", ["deaf_process", "deaf_thread"])
async def test_unresponsive_node_is_terminated(client: Client, tmp_path: Path, node_type: str) -> None:
    file = tmp_path / "begun"
    await client.register_flow(node_type, single(node_type, file=str(file)))
    run = await client.run_flow(node_type)
    await until(file.exists, "the node runs", timeout=PATIENCE_S)
    await client.terminate_node_task(f"{node_type}:{run.cycle}:0:only", reason="not today")

    async def terminated() -> bool:
        task = await client.get_node_task(f"{node_type}:{run.cycle}:0:only")
        return task.status is NodeTaskStatus.TERMINATED

    await until(terminated, "the node task is terminated", timeout=PATIENCE_S)
    if node_type == "deaf_process":
        await until(lambda: has_ended(int(file.read_text())), "its process is gone", timeout=PATIENCE_S)
    Path(f"{file}.end").touch()
    # Their places are free again.
    await client.register_flow("squares", single("squares"))
    assert await (await client.run_flow("squares")).result(PATIENCE_S) == {"only": {"sum": 14}}
