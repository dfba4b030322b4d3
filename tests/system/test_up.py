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


async def test_restarted_stack_resumes_running_flow(started: Processes) -> None:
    """After Ctrl-C and another start, flows, history and a running flow's next cycle are there."""
    first, address = await started.up()
    await started.worker(address)
    shell = Shell(address)
    await shell("flow", "register", "sums", "-", "--label", "team=a", input=flows.sums("1s").to_json())
    await shell("flow", "register", "once", "-", input=flows.sums("1h").to_json())
    await shell("flow", "start", "sums")
    await shell("flow", "watch", "sums", "--cycles", "2")

    assert await first.interrupt(timeout=15) == 0
    assert "\nstopping\n" in first.printed
    assert "tradewind flow register momentum" in first.printed
    before = int(address.rpartition(":")[2])
    again, address = await started.up(port=before)
    await again.says("Any gRPC client will do")
    assert "momentum" not in again.printed

    listed = {flow["flow_id"]: flow for flow in await shell.json("flow", "list")}
    assert (listed["sums"]["status"], listed["once"]["status"]) == ("running", "registered")
    last = listed["sums"]["last_cycle"]
    assert last >= 1
    assert (await shell.json("cycle", "list", "sums", "--status", "completed"))[-1]["cycle"] == 0
    followed = (await shell("flow", "watch", "sums", "--cycles", "2", "-o", "json")).splitlines()
    assert json.loads(followed[-1])["cycle"] >= last + 1
    assert json.loads(followed[-1])["status"] == "completed"


async def test_killed_stack_finishes_its_cycle_after_restart(started: Processes, tmp_path: Path) -> None:
    """Work that had finished does not run again; work in progress goes on, with the worker that held it."""
    first, address = await started.up()
    await started.worker(address)
    gate = tmp_path / "open"
    shell = Shell(address)
    await shell("flow", "register", "gated", "-", input=flows.gated(gate).to_json())
    await shell("flow", "run", "gated")
    await until(lambda: Path(f"{gate}.begun").exists(), "the gate has begun")

    async def settled() -> bool:
        async with Client(address) as client:
            task = await client.get_node_task("gated:0:0:gate")
            return task.progress == 50

    await until(settled, "the stack knows of it")
    os.kill(first.pid, signal.SIGKILL)
    await first.ended()
    _, address = await started.up(port=int(address.rpartition(":")[2]))
    gate.touch()

    async with Client(address) as client:
        cycle = await client.cycle("gated", 0).wait(60)
        assert cycle.succeeded, cycle
        described = await client.cycle("gated", 0).describe()
        assert [node.attempt for node in described.nodes][:2] == [1, 1]
        assert await client.cycle("gated", 0).result() == {"gate": {"passed": 6}}


async def test_waiting_for_backfill_survives_killed_stack(started: Processes, tmp_path: Path) -> None:
    first, address = await started.up()
    await started.worker(address)
    gate = tmp_path / "open"
    shell = Shell(address)
    await shell("flow", "register", "gated", "-", input=flows.gated(gate).to_json())
    hour = ("--from", "2026-01-01T00:00", "--to", "2026-01-01T01:00")
    waiting = started.start("flow", "backfill", "gated", *hour, "--wait", address=address)
    await until(lambda: Path(f"{gate}.begun").exists(), "the gate has begun")

    await first.kill()
    _, address = await started.up(port=int(address.rpartition(":")[2]))
    gate.touch()

    assert await waiting.ended() == 0, waiting.printed
    assert waiting.printed == "backfill 1 of gated: 1 planned times, 1 completed\n"


async def test_second_stack_names_process_that_holds_the_directory(started: Processes) -> None:
    first, _ = await started.up()
    second = started.start("up", "--port", "0", "--data", str(started.home / "data"))

    assert await second.ended() == 1
    assert second.printed == (
        f"error: {started.home / 'data'} is in use by process {first.pid}: stop that one, or choose another directory\n"
    )


async def test_second_stack_names_process_that_holds_the_port(started: Processes, tmp_path: Path) -> None:
    first, address = await started.up()
    port = address.rpartition(":")[2]
    second = started.start("up", "--port", port, "--data", str(tmp_path / "other"))

    assert await second.ended() == 1
    assert second.printed.startswith(f"error: port {port} is in use by process {first.pid} (")
    assert second.printed.endswith("): stop that one, or choose another port\n")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stack_stops_in_bounded_time_and_watch_resumes_after_restart(
    started: Processes, number: signal.Signals
) -> None:
    process, address = await started.up()
    await started.worker(address)
    shell = Shell(address)
    await shell("flow", "register", "sums", "-", input=flows.sums("200ms").to_json())
    await shell("flow", "start", "sums")
    watching = started.start("flow", "watch", "sums", address=address)
    await watching.says("completed")

    os.kill(process.pid, number)

    assert await process.ended(timeout=15) == 0
    assert "Traceback" not in process.printed
    _, _ = await started.up(port=int(address.rpartition(":")[2]))
    lines = len(watching.printed.splitlines())
    await until(lambda: len(watching.printed.splitlines()) > lines + 2, "the watch goes on by itself", timeout=30)
    assert await watching.interrupt() == 130
    assert "Traceback" not in watching.printed


async def test_up_prints_next_steps(started: Processes) -> None:
    port = free_port()
    process, address = await started.up(port=port)
    await process.says("grpcurl -plaintext")

    assert address == f"localhost:{port}"
    assert f"export TRADEWIND_ADDRESS=localhost:{port}" in process.printed
    assert "tradewind worker examples.momentum.nodes" in process.printed
    assert "Traceback" not in process.printed


async def test_invalid_settings_are_named(started: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_DRAIN_SECONDS", "soon")
    process = started.start("up", "--port", "0", "--data", str(started.home / "data"))

    assert await process.ended() == 1
    assert "TRADEWIND_DRAIN_SECONDS: Input should be a valid number" in process.printed
    assert "Traceback" not in process.printed
