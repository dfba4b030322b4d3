"""Called workers as users run them: processes by the command, next to the whole stack, and killed."""

import os
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system.processes import NODES, Process, Processes, Shell
from tests.waiting import until
from tradewind.client import Client
from tradewind.flow import Flow
from tradewind.standalone import Standalone
from tradewind.worker import Context, Worker, node


@pytest_asyncio.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standalone]:
    """Every service over an embedded store, with leases that do not lapse."""
    monkeypatch.setenv("TRADEWIND_NODE_TASK_MANAGER_LEASE_SECONDS", "600")
    async with Standalone(data=tmp_path / "data", port=0) as stack:
        yield stack


async def start_called_worker(processes: Processes, stack: Standalone, worker_id: str) -> Process:
    """Run `tradewind worker` with a port of its own; return once it listens."""
    process = processes.start("worker", NODES, "--listen", "127.0.0.1:0", "--id", worker_id, address=stack.address)
    await process.wait_for_output("listening on port")
    return process


async def test_flow_runs_on_called_workers(stack: Standalone) -> None:
    @node("chain", outputs=["value"])
    async def chain(ctx: Context, value: int = 0) -> int:
        ctx.log("at %s", value)
        return value + 1

    flow = Flow("called", "1h", overlap="allow")
    steps = [flow.node(f"n{at}", "chain") for at in range(10)]
    for before, after in pairwise(steps):
        before["value"] >> after["value"]
    first = Worker([chain], address=stack.address, listen="127.0.0.1:0", capacity=4)
    second = Worker([chain], address=stack.address, listen="127.0.0.1:0", capacity=4)
    async with first, second, Client(stack.address) as client:
        await client.register_flow("called", flow)
        cycles = [await client.run_flow("called") for _ in range(8)]
        assert [await cycle.result(60) for cycle in cycles] == [{"n9": {"value": 10}}] * 8
        listed = {worker.worker_id: worker.api_url async for worker in client.list_workers()}
        assert all(url.startswith("127.0.0.1:") for url in listed.values())
        assert len(listed) == 2


async def test_node_task_of_killed_called_worker_runs_again_elsewhere(
    stack: Standalone, processes: Processes, tmp_path: Path
) -> None:
    """The worker is killed in the middle of a node: its connection breaks, which counts as a lost worker at once."""
    gate = tmp_path / "gate"
    killed = await start_called_worker(processes, stack, "killed")
    async with Client(stack.address) as client:
        task = await client.submit_task("gate", {"file": str(gate), "total": 7})
        await until(lambda: Path(f"{gate}.begun").exists(), "the node runs", timeout=30)
        await start_called_worker(processes, stack, "heir")
        await killed.kill()
        Path(f"{gate}.begun").unlink()
        await until(lambda: Path(f"{gate}.begun").exists(), "it runs again", timeout=30)
        gate.touch()
        result = await task.result(timeout=30)
        assert result["passed"] == 7
        seen = await task.get()
        assert (seen.worker_id, seen.status) == ("heir", "completed")
        assert [past.code for past in seen.history] == ["WORKER_LOST"]
        # The killed worker is still listed as alive, but gets nothing.
        later = await client.submit_task("gate", {"file": str(gate), "total": 8})
        assert (await later.wait(30)).worker_id == "heir"
        assert (await later.get()).attempt == 1


async def test_called_worker_stops_cancelled_task(stack: Standalone, processes: Processes, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await start_called_worker(processes, stack, "w1")
    async with Client(stack.address) as client:
        task = await client.submit_task("gate", {"file": str(gate)})
        await until(lambda: Path(f"{gate}.begun").exists(), "the node runs", timeout=30)
        await task.cancel(reason="enough")
        assert (await task.wait(timeout=30)).status == "terminated"


async def test_interrupted_called_worker_finishes_its_node_task_and_leaves(
    stack: Standalone, processes: Processes, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    worker = await start_called_worker(processes, stack, "w1")
    async with Client(stack.address) as client:
        task = await client.submit_task("gate", {"file": str(gate), "total": 3})
        await until(lambda: Path(f"{gate}.begun").exists(), "the node runs", timeout=30)
        os.kill(worker.pid, signal.SIGINT)
        await worker.wait_for_output("leaving")
        gate.touch()
        assert await worker.wait_for_exit() == 0
        assert await task.result(timeout=30) == {"passed": 3}
        assert [worker async for worker in client.list_workers()] == []


async def test_unreachable_listen_address_is_refused() -> None:
    output = await Shell("localhost:1")("worker", NODES, "--listen", "0.0.0.0:0", exit_code=2)
    assert "set api_url to the one that others can reach" in output
