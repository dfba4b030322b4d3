"""Every command against a running stack, as a person types them."""

import asyncio
import json
import re
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from tests.system import flows
from tests.system.processes import Processes, Shell
from tests.waiting import until
from tradewind.client import Client
from tradewind.flow import Flow
from tradewind.worker import Worker


async def test_a_flow_from_registration_to_deletion(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "sums.json"
    path.write_text(flows.sums().to_json(), encoding="utf-8")

    assert "0          3      feed" in await shell("flow", "analyze", str(path))
    assert await shell("flow", "register", "sums", str(path), "--label", "team=a") == (
        "sums registered: revision 1, 4 nodes in 2 components\n"
    )
    assert "unchanged" in await shell("flow", "register", "sums", "-", "--label", "team=a", input=path.read_text())
    assert (await shell.json("flow", "list"))[0]["labels"] == {"team": "a"}

    outcome = (await shell("flow", "run", "sums", "--wait", "--input", "start=2")).splitlines()
    assert re.fullmatch(r"sums cycle 0 completed in \d+ ms \(4 completed\)", outcome[0])
    assert outcome[1:] == ["sort.even = 14", "alone.numbers = [2, 3, 4]"]

    assert re.search(r"last cycle +0 completed", await shell("flow", "status", "sums"))
    assert (await shell.json("flow", "status", "sums"))["statistics"]["completed_nodes"] == 4
    assert re.search(r"feed +numbers +completed +1 ", await shell("cycle", "show", "sums"))
    assert await shell("cycle", "show", "sums", "0", "--output", "sort") == '{\n  "even": 14\n}\n'
    assert [cycle["status"] for cycle in await shell.json("cycle", "list", "sums")] == ["completed"]
    assert "numbers from 2" in await shell("flow", "logs", "sums", "--cycle", "0", "-f")
    assert "feed (numbers)" in await shell("flow", "graph", "sums")
    assert (await shell("flow", "graph", "sums", "-o", "mermaid")).startswith("flowchart LR")
    assert re.search(r"type +parity\nstatus +completed", await shell("task", "show", "sums:0:0:sort"))
    (line,) = (await shell("task", "watch", "sums:0:0:sort")).splitlines()
    assert line.strip() == 'completed: {"even": 14}'

    assert await shell("flow", "delete", "sums") == "sums deleted\n"
    assert await shell("flow", "status", "sums", exit_code=2) == 'error: no flow "sums"; see: tradewind flow list\n'
    assert await shell.json("flow", "list") == []


async def test_flow_start_watch_and_stop_commands(shell: Shell) -> None:
    await shell("flow", "register", "sums", "-", input=flows.sums("200ms").to_json())
    assert (await shell("flow", "start", "sums")).startswith("sums is running")

    lines = (await shell("flow", "watch", "sums", "--cycles", "3")).splitlines()
    assert [line.split()[3] for line in lines if " in " in line][-3:] == ["completed"] * 3
    followed = [
        json.loads(line) for line in (await shell("flow", "watch", "sums", "--cycles", "2", "-o", "json")).splitlines()
    ]
    assert followed[-1]["status"] == "completed"
    assert (await shell.json("flow", "list", "--status", "running"))[0]["flow_id"] == "sums"

    assert await shell("flow", "stop", "sums", "--reason", "enough") == "sums is stopped\n"
    assert (await shell.json("flow", "status", "sums"))["flow"]["next_execution"] is None
    assert 'by "default": enough' in await shell("flow", "status", "sums")


async def test_commands_show_pause_and_firings_of_cron_flow(shell: Shell, tmp_path: Path) -> None:
    flow = Flow("ticks", schedule={"cron": "* * * * * *"}, overlap="queue_one")
    flow.node("feed", "numbers")
    await shell("flow", "register", "ticks", "-", input=flow.to_json())
    planned = [datetime.fromisoformat(moment) for moment in await shell.json("flow", "next", "ticks", "-n", "3")]
    assert [later - earlier for earlier, later in pairwise(planned)] == [timedelta(seconds=1)] * 2
    assert "* * * * * * (UTC)" in await shell("flow", "status", "ticks")

    await shell("flow", "start", "ticks")
    await shell("flow", "watch", "ticks", "--cycles", "2")
    assert await shell("flow", "pause", "ticks", "--note", "lunch") == "ticks is paused\n"
    assert re.search(r'paused +.* by "default": lunch', await shell("flow", "status", "ticks"))
    paused = datetime.fromisoformat((await shell.json("flow", "status", "ticks"))["flow"]["pause"]["paused_at"])
    firings = await shell.json("flow", "firings", "ticks")
    assert {firing["outcome"] for firing in firings} <= {"fired", "missed", "queued", "dropped"}
    assert {firing["cycle"] for firing in firings} >= {0, 1}

    await asyncio.sleep(1.5)
    assert (await shell("flow", "resume", "ticks")).startswith("ticks is running, next cycle ")
    skipped = [line for line in await shell.json("flow", "firings", "ticks") if line["outcome"] == "skipped"]
    assert [line["reason"] for line in skipped] == ['paused by "default": lunch']
    assert datetime.fromisoformat(skipped[0]["planned_time"]) > paused - timedelta(seconds=1)
    await shell("flow", "watch", "ticks", "--cycles", "1")
    assert (
        await shell("flow", "pause", "nothing", exit_code=2)
    ) == 'error: no flow "nothing"; see: tradewind flow list\n'

    await shell("flow", "register", "once", "-", input=flows.gated(tmp_path / "open", "0").to_json())
    await shell("flow", "start", "once")

    async def begun() -> bool:
        return (await shell.json("flow", "status", "once"))["flow"]["next_execution"] is None

    await until(begun, "the one cycle of the flow has begun")
    assert await shell("flow", "resume", "once") == "once is running\n"
    await shell("flow", "stop", "once")


async def test_failed_run_is_reported_with_exit_code_1(shell: Shell) -> None:
    await shell("flow", "register", "failing", "-", input=flows.failing().to_json())

    lines = (await shell("flow", "run", "failing", "--wait", exit_code=1)).splitlines()

    assert lines[0].startswith("failing cycle 0 failed in ")
    assert lines[1] == "  bad (failing) failed: ValueError: will not have 6"
    assert "ValueError: will not have 6" in await shell("cycle", "show", "failing")
    task = await shell.json("task", "show", "failing:0:0:bad")
    assert 'raise ValueError(f"will not have {total}")' in task["error"]["traceback"]
    assert (await shell("cycle", "show", "failing", "--output", "bad", exit_code=1)).startswith(
        "error: bad has no output"
    )


async def test_terminate_command_fails_waiting_run_command(shell: Shell, processes: Processes, tmp_path: Path) -> None:
    await shell("flow", "register", "gated", "-", input=flows.gated(tmp_path / "open").to_json())
    waiting = processes.start("flow", "run", "gated", "--wait", address=shell.address)
    following = processes.start("flow", "logs", "gated", "-f", address=shell.address)
    await following.wait_for_output("numbers from 1")
    await until(lambda: (tmp_path / "open.begun").exists(), "the gate has begun")
    task = await shell.json("task", "show", "gated:0:0:gate")

    assert task["status"] == "running"
    await shell("task", "terminate", "gated:0:0:gate", "--reason", "not today")
    assert await waiting.wait_for_exit() == 1
    assert "not today" in waiting.output
    assert await following.interrupt() == 130


async def test_interrupted_wait_says_what_continues_and_how_to_end_it(shell: Shell, processes: Processes) -> None:
    flow = Flow("lonely", "1h")
    flow.node("moon", "lunar")
    await shell("flow", "register", "lonely", "-", input=flow.to_json())
    run = processes.start("flow", "run", "lonely", "--wait", address=shell.address)
    submitted = processes.start("task", "submit", "lunar", "--wait", address=shell.address)
    for waiting in run, submitted:
        await waiting.wait_for_output("no live worker offers")

    assert (await run.interrupt(), await submitted.interrupt()) == (130, 130)

    assert "note: cycle 0 of lonely continues; to end it: tradewind cycle stop lonely 0\n" in run.output
    (listed,) = await shell.json("task", "list")
    task = listed["node_task_id"]
    assert f"note: {task} continues; to end it: tradewind task cancel {task}\n" in submitted.output
    await shell("cycle", "stop", "lonely", "0")
    await shell("task", "cancel", task)


async def test_bad_input_lists_every_fault(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "nodes:\n- {id: feed, type: numbers}\n- {id: add, type: total}\n"
        "edges:\n- {source: feed, source_handle: numbers, target: ad, target_handle: numbers}\n",
        encoding="utf-8",
    )

    output = await shell("flow", "register", "bad", str(path), exit_code=2)

    assert output.startswith("error: the request has faults:\n")
    assert "\n  interval: " in output
    assert re.search(r'edges\[0\].target: .*did you mean "add"', output)


async def test_drain_command_counts_node_tasks_still_running(
    client: Client, worker: Worker, shell: Shell, tmp_path: Path
) -> None:
    """The worker's own count is as old as its last heartbeat, which comes only every 20 s."""
    file = tmp_path / "gate"
    await client.submit_task("gate", {"file": str(file)})
    await until(Path(f"{file}.begun").exists, "the node runs")
    output = await shell("worker", "drain", worker.worker_id)
    file.touch()
    assert output == f"worker {worker.worker_id} is draining, with 1 node task to finish\n"


async def test_worker_list_follows_workers_that_join_and_leave(shell: Shell, processes: Processes) -> None:
    second = await processes.start_worker(shell.address, "--id", "second", "--capacity", "7", "--label", "zone=b")

    listed = {worker["worker_id"]: worker for worker in await shell.json("worker", "list")}
    assert len(listed) == 2
    assert (listed["second"]["capacity"], listed["second"]["labels"]) == (7, {"zone": "b"})
    assert "second" in await shell("worker", "list")

    assert await second.interrupt() == 0
    assert "second" not in await shell("worker", "list")


async def test_unoffered_node_type_is_reported(shell: Shell) -> None:
    definition = {"interval": "1h", "nodes": [{"id": "moon", "type": "lunar"}], "edges": []}

    registered = await shell("flow", "register", "moon", "-", input=json.dumps(definition))
    await shell("flow", "run", "moon")

    assert "lunar" in registered.splitlines()[1]
    assert re.search(r"moon +lunar +pending +-.*no live worker", await shell("cycle", "show", "moon"))


async def test_run_with_wait_shows_why_the_cycle_waits(shell: Shell, processes: Processes) -> None:
    flow = Flow("lonely", "1h")
    flow.node("only", "nobody")["x"] >> flow.node("next", "nobody")["x"]
    await shell("flow", "register", "lonely", "-", input=flow.to_json())

    running = processes.start("flow", "run", "lonely", "--wait", address=shell.address)

    await running.wait_for_output('note: only (nobody): no live worker offers node type "nobody"')
    assert "next (nobody)" not in running.output
    await shell("cycle", "stop", "lonely")
    assert await running.wait_for_exit() == 1
    assert running.output.count("note: ") == 1


async def test_bench_measures_running_stack_and_leaves_no_flows(shell: Shell) -> None:
    measured = await shell.json("bench", "chain-1", "single-1000", "--scale", "0.02")

    assert [each["workload"] for each in measured] == ["chain-1", "single-1000"]
    assert all(each["nodes_per_second"] > 1 for each in measured)
    assert await shell.json("flow", "list") == []
    assert 'unknown workload "chain-9"' in await shell("bench", "chain-9", exit_code=2)
