"""`tradewind up`: its start, its end, a crash, and what is there afterwards."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system import flows
from tests.system.processes import Processes, Shell
from tests.waiting import until
from tradewind.client import Client


async def test_restarted_stack_resumes_running_flow(processes: Processes) -> None:
    """After Ctrl-C and another start, flows, history and a running flow's next cycle are there."""
    first, address = await processes.start_stack()
    await processes.start_worker(address)
    shell = Shell(address)
    await shell("flow", "register", "sums", "-", "--label", "team=a", input=flows.sums("1s").to_json())
    await shell("flow", "register", "once", "-", input=flows.sums("1h").to_json())
    await shell("flow", "start", "sums")
    await shell("flow", "watch", "sums", "--cycles", "2")

    assert await first.interrupt(timeout=15) == 0
    assert "\nstopping\n" in first.output
    assert "tradewind flow register momentum" in first.output
    before = int(address.rpartition(":")[2])
    again, address = await processes.start_stack(port=before)
    await again.wait_for_output("Any gRPC client will do")
    assert "momentum" not in again.output

    listed = {flow["flow_id"]: flow for flow in await shell.json("flow", "list")}
    assert (listed["sums"]["status"], listed["once"]["status"]) == ("running", "registered")
    last = listed["sums"]["last_cycle"]
    assert last >= 1
    assert (await shell.json("cycle", "list", "sums", "--status", "completed"))[-1]["cycle"] == 0
    followed = (await shell("flow", "watch", "sums", "--cycles", "2", "-o", "json")).splitlines()
    assert json.loads(followed[-1])["cycle"] >= last + 1
    assert json.loads(followed[-1])["status"] == "completed"


@pytest.mark.skipif(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="run with nohup, which processes inherit")
async def test_closed_terminal_stops_stack_in_order(processes: Processes) -> None:
    stack, _ = await processes.start_stack()
    for _ in range(2):
        os.kill(stack.pid, signal.SIGHUP)
    assert await stack.wait_for_exit() == 0
    assert "\nstopping\n" in stack.output


async def test_killed_stack_finishes_its_cycle_after_restart(processes: Processes, tmp_path: Path) -> None:
    """Work that had finished does not run again; work in progress goes on, with the worker that held it."""
    first, address = await processes.start_stack()
    await processes.start_worker(address)
    gate = tmp_path / "open"
    shell = Shell(address)
    await shell("flow", "register", "gated", "-", input=flows.gated(gate).to_json())
    await shell("flow", "run", "gated")
    await until(lambda: Path(f"{gate}.begun").exists(), "the gate has begun")

    async def settled() -> bool:
        async with Client(address) as client:
            task = await client.get_node_task("gated:0:0:gate")
            return task.progress == 50

    await until(settled, "the stack knows that the gate runs")
    os.kill(first.pid, signal.SIGKILL)
    await first.wait_for_exit()
    _, address = await processes.start_stack(port=int(address.rpartition(":")[2]))
    gate.touch()

    async with Client(address) as client:
        cycle = await client.cycle("gated", 0).wait(60)
        assert cycle.succeeded, cycle
        described = await client.cycle("gated", 0).describe()
        assert [node.attempt for node in described.nodes][:2] == [1, 1]
        assert await client.cycle("gated", 0).result() == {"gate": {"passed": 6}}


async def test_waiting_for_backfill_survives_killed_stack(processes: Processes, tmp_path: Path) -> None:
    first, address = await processes.start_stack()
    await processes.start_worker(address)
    gate = tmp_path / "open"
    shell = Shell(address)
    await shell("flow", "register", "gated", "-", input=flows.gated(gate).to_json())
    hour = ("--from", "2026-01-01T00:00", "--to", "2026-01-01T01:00")
    waiting = processes.start("flow", "backfill", "gated", *hour, "--wait", address=address)
    await until(lambda: Path(f"{gate}.begun").exists(), "the gate has begun")

    await first.kill()
    _, address = await processes.start_stack(port=int(address.rpartition(":")[2]))
    gate.touch()

    assert await waiting.wait_for_exit() == 0, waiting.output
    assert waiting.output == "backfill 1 of gated: 1 planned times, 1 completed\n"


async def test_second_stack_names_process_that_holds_the_directory(processes: Processes) -> None:
    first, _ = await processes.start_stack()
    second = processes.start("up", "--port", "0", "--data", str(processes.home / "data"))

    assert await second.wait_for_exit() == 1
    assert second.output == (
        f"error: {processes.home / 'data'} is in use by process {first.pid}: "
        "stop that one, or choose another directory\n"
    )


async def test_second_stack_names_process_that_holds_the_port(processes: Processes, tmp_path: Path) -> None:
    first, address = await processes.start_stack()
    port = address.rpartition(":")[2]
    second = processes.start("up", "--port", port, "--data", str(tmp_path / "other"))

    assert await second.wait_for_exit() == 1
    assert second.output.startswith(f"error: port {port} is in use by process {first.pid} (")
    assert second.output.endswith("): stop that one, or choose another port\n")
    assert not (tmp_path / "other").exists()


async def test_stack_that_cannot_start_says_so_as_it_logs(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = await processes.start_stack()
    monkeypatch.setenv("TRADEWIND_LOG_FORMAT", "json")
    second = processes.start("up", "--port", address.rpartition(":")[2], "--data", str(tmp_path / "other"))

    assert await second.wait_for_exit() == 1
    (entry,) = map(json.loads, second.output.splitlines())
    assert (entry["event"], entry["level"]) == ("cannot_start", "error")
    assert entry["error"].startswith(f"port {address.rpartition(':')[2]} is in use")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stack_stops_in_bounded_time_and_watch_resumes_after_restart(
    processes: Processes, number: signal.Signals
) -> None:
    process, address = await processes.start_stack()
    await processes.start_worker(address)
    shell = Shell(address)
    await shell("flow", "register", "sums", "-", input=flows.sums("200ms").to_json())
    await shell("flow", "start", "sums")
    watching = processes.start("flow", "watch", "sums", address=address)
    await watching.wait_for_output("completed")

    os.kill(process.pid, number)

    assert await process.wait_for_exit(timeout=15) == 0
    assert "Traceback" not in process.output
    _, _ = await processes.start_stack(port=int(address.rpartition(":")[2]))
    lines = len(watching.output.splitlines())
    await until(lambda: len(watching.output.splitlines()) > lines + 2, "the watch resumes by itself", timeout=30)
    assert await watching.interrupt() == 130
    assert "Traceback" not in watching.output


async def test_up_prints_next_steps(processes: Processes) -> None:
    port = free_port()
    process, address = await processes.start_stack(port=port)
    await process.wait_for_output("grpcurl -plaintext")

    assert address == f"localhost:{port}"
    assert f"export TRADEWIND_ADDRESS=localhost:{port}" in process.output
    assert "tradewind worker examples.momentum.nodes" in process.output
    assert "Traceback" not in process.output


async def test_invalid_settings_are_named(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_DRAIN_SECONDS", "soon")
    process = processes.start("up", "--port", "0", "--data", str(processes.home / "data"))

    assert await process.wait_for_exit() == 2
    assert "TRADEWIND_DRAIN_SECONDS: Input should be a valid number" in process.output
    assert "Traceback" not in process.output
