"""Stopping a node in a process of its own always works: it is asked, then interrupted, then killed."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.rpc.worker.test_processes import config, process_bench
from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.worker.processes import node_process


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def pids(bench: Bench, token: str = "t1") -> list[int]:
    """Wait until the node runs; return the processes named in its first progress: its own, and perhaps others."""
    await until(lambda: token in bench.runs and bench.runs[token].progress, f"{token} runs")
    return [int(pid) for pid in bench.runs[token].progress[0][1].split()]


@pytest.mark.parametrize("node_type", ["polls", "waits"])
async def test_process_survives_node_that_obeys_stop(node_type: str) -> None:
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment(node_type))
        (pid,) = await pids(bench)
        bench.stop(reason="market closed", by="ada")
        run = await bench.end("t1")
        assert (await bench.run(bench.assignment("pid", "t2"))).output == pid

    assert run.terminated
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("", "market closed (by ada)")
    if node_type == "waits":
        assert [line.message for line in run.logs] == ["stopped reason='market closed' source='ada'"]


@pytest.mark.parametrize("held_s", [0, 1])
async def test_busy_node_is_interrupted_after_grace_and_can_clean_up(
    held_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_process, "KILL_DELAY", 20.0)
    note = tmp_path / "note"
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("calculates", config_json=config(note=str(note), held_s=held_s)))
        (pid,) = await pids(bench)
        bench.stop(grace=0.05)
        run = await bench.end("t1")
        assert (await bench.run(bench.assignment("pid", "t2"))).output != pid
        await until(lambda: not alive(pid), "the process is gone")

    assert run.terminated
    assert run.error is not None
    assert run.error.message == "enough (by ada)"
    assert note.read_text() == "NodeStopExecution"


async def test_node_that_ignores_interrupt_is_killed_with_its_processes(caplog: pytest.LogCaptureFixture) -> None:
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("deaf"))
        started = await pids(bench)
        bench.stop(grace=0.05)
        run = await bench.end("t1")
        assert not alive(started[0])
        await until(lambda: not any(map(alive, started)), "what it started is gone too")
        assert (await bench.run(bench.assignment("pid", "t2"))).error is None

    assert run.terminated
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("", "enough (by ada)")
    assert [line.message for line in run.logs] == [
        "the node kept running although it was told to stop, so its process was killed"
    ]
    assert "is still running although it was told to stop (enough); its process is being killed" in caplog.text


async def test_stop_during_start_of_process_is_not_lost() -> None:
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("polls"))
        await until(lambda: bench.executor.held["t1"].process, "a process was started")
        bench.stop()
        run = await bench.end("t1")

    assert run.terminated
    assert run.progress == []


async def test_stop_is_not_lost_when_process_dies_before_node_begins() -> None:
    async with process_bench(1) as bench:
        pid = (await bench.run(bench.assignment("pid"))).output
        os.kill(pid, signal.SIGSTOP)
        bench.executor.start(bench.assignment("polls", "t2"))
        await until(lambda: bench.executor.held["t2"].process, "the node is given to it")
        bench.stop("t2")
        os.kill(pid, signal.SIGKILL)
        run = await bench.end("t2")

    assert run.terminated
    assert run.progress == []


async def test_stop_ends_node_that_waits_for_process(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("finishes", config_json=config(flag=str(flag))))
        await pids(bench)
        bench.executor.start(bench.assignment("pid", "t2"))
        await until(lambda: bench.executor.held["t2"].begun_ns, "the second waits")
        bench.stop("t2")
        assert (await bench.end("t2")).terminated
        flag.touch()
        assert (await bench.end("t1")).output == "done"
        assert (await bench.run(bench.assignment("pid", "t3"))).error is None


async def test_deadline_kills_node_that_ignores_stop() -> None:
    async with process_bench(1) as bench:
        assert (await bench.run(bench.assignment("pid", "t0"))).error is None, "the process has started"
        assignment = bench.assignment("deaf")
        assignment.deadline.FromNanoseconds(int((time.time() + 2.0) * 1e9))
        bench.executor.start(assignment)
        started = await pids(bench)
        run = await bench.end("t1")

    assert run.error is not None
    assert run.error.code == "TIMEOUT"
    assert not run.terminated
    assert not alive(started[0])


@pytest.mark.parametrize("node_type", ["polls", "deaf"])
async def test_lost_lease_ends_node_without_report(node_type: str) -> None:
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment(node_type))
        started = await pids(bench)
        bench.executor.lose("t1", "given to another worker")
        assert not bench.executor.held
        if node_type == "deaf":
            await until(lambda: not any(map(alive, started)), "its process is gone")
        used_again = (await bench.run(bench.assignment("pid", "t2"))).output == started[0]
        assert used_again == (node_type == "polls")

    assert bench.ended == ["t2"]
    assert bench.given_back == []


async def test_leaving_gives_back_stopped_nodes_and_completes_others(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with process_bench(3) as bench:
        for token, node_type in (("t1", "deaf"), ("t2", "waits"), ("t3", "finishes")):
            bench.executor.start(
                bench.assignment(node_type, token, config_json=config(flag=str(flag)) if token == "t3" else "")
            )
            await pids(bench, token)
        started = await pids(bench)
        bench.executor.give_back_all("the worker leaves", grace=0.05)
        flag.touch()
        await bench.executor.wait_idle()
        assert not alive(started[0])

    assert sorted(bench.given_back) == ["t1", "t2"]
    assert bench.runs["t3"].output == "done"


async def test_dead_process_takes_its_child_processes_along() -> None:
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("litters"))
        left = await pids(bench)
        assert (await bench.end("t1")).error is not None
        await until(lambda: not any(map(alive, left)), "what it started is gone")


async def test_closing_leaves_no_process_behind() -> None:
    async with process_bench(3) as bench:
        bench.executor.start(bench.assignment("deaf", "t1"))
        bench.executor.start(bench.assignment("waits", "t2"))
        deaf, child_of_deaf = await pids(bench)
        (waiting,) = await pids(bench, "t2")
        idle = (await bench.run(bench.assignment("pid", "t3"))).output

    assert [pid for pid in (deaf, waiting, idle) if alive(pid)] == []
    await until(lambda: not alive(child_of_deaf), "what a node started is gone too")
    assert bench.ended == ["t3"]
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
