"""Nodes with `process=True` in real processes: they run side by side, fail, die, and keep their secrets."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.worker import process_nodes
from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.worker import Node
from tradewind.worker.processes import node_process
from tradewind.worker.processes.pool import ProcessPool
from tradewind.worker.processes.targets import locate

NODES = [value for value in vars(process_nodes).values() if isinstance(value, Node)]


def process_bench(processes: int = 2, **options: Any) -> Bench:
    """Return an executor with processes for every node of process_nodes.py."""
    pool = ProcessPool(processes, {node.type: locate(node) for node in NODES})
    return Bench(NODES, processes=pool, **options)


def config(**values: object) -> str:
    return json.dumps(values)


async def test_context_is_the_same_in_process() -> None:
    async with process_bench() as bench:
        assignment = bench.assignment("facts", flow_id="momentum", cycle=7, run_id="4f", config_json=config(factor=3))
        assignment.inputs.add(handle="value", values_json=["14"])
        assignment.planned_time.FromJsonString("2026-01-02T03:04:05Z")
        run = await bench.run(assignment)

    facts = run.output
    assert facts.pop("pid") != os.getpid()
    assert facts == {
        "product": 42,
        "idempotency_key": "4f:t1",
        "flow": ["momentum", 7, 0, "t1", 1],
        "planned_time": "2026-01-02T03:04:05Z",
        "main_thread": True,
    }
    assert run.progress == [(40, "begun")]
    assert [(line.level, line.message) for line in run.logs] == [("WARNING", "value is 14")]


async def test_variable_that_is_too_long_for_a_frame_does_not_end_the_process() -> None:
    async with process_bench(1) as bench:
        run = await bench.run(bench.assignment("keeps_much", flow_id="momentum"))

    reason, message = run.output
    assert reason == "TOO_LARGE"
    assert message.endswith(" bytes: keep the data elsewhere, and its place here")


async def test_failed_process_node_releases_its_objects() -> None:
    async with process_bench(1) as bench:
        assert (await bench.run(bench.assignment("fails_with_large_object"))).error
        assert (await bench.run(bench.assignment("fails_with_large_object_on_a_loop", "t2"))).error
        bench.executor.start(bench.assignment("stops_with_large_object", "t3"))
        await until(lambda: bench.runs.get("t3"), "the node waits")
        bench.stop("t3")
        assert (await bench.end("t3")).terminated
        assert (await bench.run(bench.assignment("large_objects_alive", "t4"))).output == [False, False, False]


async def test_async_process_node_emits_by_handle() -> None:
    async with process_bench() as bench:
        up = await bench.run(bench.assignment("branch", config_json=config(value=2)))
        down = await bench.run(bench.assignment("branch", "t2", config_json=config(value=-2)))

    assert (up.outputs, down.outputs) == ({"buy": 2}, {"sell": -2})


async def test_processes_are_reused() -> None:
    async with process_bench() as bench:
        pids = [(await bench.run(bench.assignment("pid", f"t{index}"))).output for index in range(5)]

    assert len(set(pids)) == 1
    assert pids[0] != os.getpid()


async def test_process_is_replaced_when_a_task_that_a_node_left_behind_does_not_end() -> None:
    async with process_bench(1) as bench:
        left = (await bench.run(bench.assignment("leaves_a_task_behind"))).output
        after = [(await bench.run(bench.assignment("pid", f"t{index}"))).output for index in (2, 3)]

    assert left not in after
    assert after[0] == after[1]


async def test_two_process_nodes_run_concurrently(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    async with process_bench(2) as bench:
        bench.executor.start(bench.assignment("meets", "t1", config_json=config(mine=one, theirs=other)))
        bench.executor.start(bench.assignment("meets", "t2", config_json=config(mine=other, theirs=one)))
        assert [(await bench.end(token)).output for token in ("t1", "t2")] == ["met", "met"]


async def test_no_more_nodes_run_than_there_are_processes(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("finishes", "t1", config_json=config(flag=str(flag))))
        await until(lambda: bench.runs.get("t1"), "the first runs")
        bench.executor.start(bench.assignment("pid", "t2"))
        bench.executor.start(bench.assignment("pid", "t3"))
        await until(lambda: bench.executor.held["t3"].begun_ns, "the others wait")
        flag.touch()
        pids = [(await bench.end(token)).output for token in ("t2", "t3")]

    assert bench.ended == ["t1", "t2", "t3"]
    assert {str(pid) for pid in pids} == {bench.runs["t1"].progress[0][1]}


async def test_timeout_of_node_that_found_no_free_process_says_so(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("finishes", "t1", config_json=config(flag=str(flag))))
        await until(lambda: bench.runs.get("t1"), "the first runs")
        behind = bench.assignment("pid", "t2")
        behind.deadline.FromNanoseconds(time.time_ns() + 200_000_000)
        error = (await bench.run(behind)).error
        flag.touch()
        await bench.end("t1")

    assert error is not None
    assert error.code == "TIMEOUT"
    assert "after its worker took it, and no process was free" in error.message


async def test_errors_of_process_nodes_are_reported_like_others() -> None:
    async with process_bench() as bench:
        errors = {
            kind: (await bench.run(bench.assignment("raises", kind, config_json=config(kind=kind)))).error
            for kind in ("value", "later", "fatal", "exit", "unwritable")
        }
        missing = (await bench.run(bench.assignment("facts", "t2"))).error
        same = {(await bench.run(bench.assignment("pid", f"p{index}"))).output for index in range(2)}

    shown = {
        kind: (error.code, error.type, error.message, error.retry_after and error.retry_after.seconds)
        for kind, error in errors.items()
        if error is not None
    }
    assert shown == {
        "value": ("NODE_ERROR", "ValueError", "a price below zero", None),
        "later": ("NODE_ERROR", "RetryLater", "the exchange is full", 90),
        "fatal": ("NODE_ERROR", "Fatal", "no such account", None),
        "exit": ("NODE_ERROR", "SystemExit", "3", None),
        "unwritable": (
            "INVALID_OUTPUT",
            "",
            "the output is not JSON: a value of type object cannot be written as JSON",
            None,
        ),
    }
    assert errors["value"] is not None
    assert 'raise ValueError("a price below zero")' in errors["value"].traceback
    assert "tradewind/worker" not in errors["value"].traceback
    assert errors["fatal"] is not None
    assert errors["fatal"].non_retryable
    assert missing is not None
    assert missing.code == "INPUT_MISSING"
    assert len(same) == 1


@pytest.mark.parametrize("node_type", ["priced", "priced_on_a_loop"])
async def test_types_are_checked_in_process(node_type: str) -> None:
    shares = [{"symbol": "A", "price": 1}, {"symbol": "B", "price": 2}]
    async with process_bench() as bench:
        right = await bench.run(bench.assignment(node_type, "t1", config_json=config(shares=shares)))
        unread = await bench.run(bench.assignment(node_type, "t2", config_json=config(shares=[{"symbol": "A"}])))
        wrong = await bench.run(bench.assignment(node_type, "t3", config_json=config(shares=shares[:1])))

    assert right.output == 2
    assert unread.error is not None
    assert unread.error.message == "config.shares[0].price: Field required"
    assert wrong.error is not None
    assert (wrong.error.code, wrong.error.message) == (
        "INVALID_OUTPUT",
        "output: expected float, got str; the function says it returns float",
    )


async def test_sys_exit_in_task_of_node_fails_only_that_node() -> None:
    async with process_bench(1) as bench:
        before = await bench.run(bench.assignment("pid"))
        failed = await bench.run(bench.assignment("exits", "t2"))
        after = await bench.run(bench.assignment("branch", "t3", config_json=config(value=2)))
        assert (await bench.run(bench.assignment("pid", "t4"))).output == before.output

    assert failed.error is not None
    assert (failed.error.code, failed.error.type) == ("NODE_ERROR", "SystemExit")
    assert after.outputs == {"buy": 2}


async def test_process_node_may_block_its_event_loop() -> None:
    async with process_bench(1) as bench:
        for token in ("t1", "t2"):
            assert (await bench.run(bench.assignment("calculates_on_a_loop", token))).logs == []


async def test_process_node_can_terminate_itself_with_any_text() -> None:
    async with process_bench(1) as bench:
        run = await bench.run(bench.assignment("ends_itself"))

    assert run.terminated
    assert run.error is not None
    assert run.error.message.startswith(r"caf\udce9caf\udce9")


@pytest.mark.parametrize(("stops", "type"), [(True, "Closed"), (False, "Indescribable")])
async def test_error_that_cannot_be_described_fails_process_node(stops: bool, type: str) -> None:
    async with process_bench(1) as bench:
        error = (await bench.run(bench.assignment("fails_oddly", config_json=config(stops=stops)))).error

    assert error is not None
    assert (error.code, error.type) == ("NODE_ERROR", type)


async def test_context_variables_do_not_leak_to_next_node() -> None:
    async with process_bench(1) as bench:
        seen = [
            (await bench.run(bench.assignment("binds", token, config_json=config(order=token)))).output
            for token in ("t1", "t2")
        ]

    assert seen == ["none", "none"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("segfault", "died of signal SIGSEGV (11)"),
        ("exit", "ended with exit code 7"),
        ("kill", "died of signal SIGKILL (9); if nobody sent it, the machine may have run out of memory"),
        ("close", "ended with exit code 1"),
        ("hang up", "closed its connection to the worker, so it was killed"),
    ],
)
async def test_dead_process_fails_its_node_and_is_replaced(
    how: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "close":
        # The process ends after its connection, on a busy machine some time after.
        monkeypatch.setattr(node_process, "LAST_WORDS", 20.0)
    async with process_bench(1) as bench:
        before = (await bench.run(bench.assignment("pid", "t1"))).output
        run = await bench.run(bench.assignment("dies", "t2", config_json=config(how=how)))
        after = (await bench.run(bench.assignment("pid", "t3"))).output

    assert run.error is not None
    assert (run.error.code, run.error.message) == ("PROCESS_DIED", f"the process of the node {message}")
    assert not run.error.non_retryable
    assert [line.message for line in run.logs] == ["last words"]
    assert before != after


async def test_process_killed_from_outside_fails_its_node(tmp_path: Path) -> None:
    async with process_bench(1) as bench:
        bench.executor.start(bench.assignment("finishes", config_json=config(flag=str(tmp_path / "never"))))
        await until(lambda: bench.runs.get("t1"), "the node runs")
        os.kill(int(bench.runs["t1"].progress[0][1]), signal.SIGKILL)
        run = await bench.end("t1")

    assert run.error is not None
    assert run.error.code == "PROCESS_DIED"
    assert "SIGKILL" in run.error.message


async def test_process_that_dies_while_idle_does_not_fail_next_node() -> None:
    async with process_bench(1) as bench:
        pids = [(await bench.run(bench.assignment("pid", "t0"))).output]
        for index in range(1, 4):
            os.kill(pids[-1], signal.SIGKILL)
            pids.append((await bench.run(bench.assignment("pid", f"t{index}"))).output)

    assert len(set(pids)) == 4


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("/nowhere/python", "no process could be started for the node: [Errno 2] No such file or directory"),
        ("/bin/false", "the node could not begin: its process ended with exit code 1; the worker's output"),
    ],
)
async def test_process_that_cannot_start_fails_its_node(
    monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    async with process_bench(1) as bench:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", program)
            error = (await bench.run(bench.assignment("pid"))).error
        after = await bench.run(bench.assignment("pid", "t2"))

    assert error is not None
    assert error.code == "PROCESS_DIED"
    assert error.message.startswith(message)
    assert after.output != os.getpid()


async def test_secrets_reach_process_node_but_not_its_logs_and_errors() -> None:
    known = {"key": 'hush "42"', "wrong": "hush!"}
    async with process_bench(secrets=known.get) as bench:
        fine = await bench.run(bench.assignment("secretive", config_json='{"key": {"$secret": "key"}}'))
        wrong = await bench.run(bench.assignment("secretive", "t2", config_json='{"key": {"$secret": "wrong"}}'))
        plain = await bench.run(bench.assignment("secretive", "t3", config_json='{"key": "hush"}'))
        unknown = await bench.run(bench.assignment("secretive", "t4", config_json='{"key": {"$secret": "other"}}'))

    assert (fine.output, plain.output) == (9, 4)
    assert [run.logs[0].message for run in (fine, wrong, plain)] == [
        "the key is [secret key]",
        "the key is [secret wrong]",
        "the key is hush",
    ]
    assert wrong.error is not None
    assert wrong.error.message == "[secret wrong] is wrong"
    assert "hush" not in wrong.error.traceback
    assert unknown.error is not None
    assert unknown.error.code == "SECRET_MISSING"


async def test_forked_child_of_node_can_be_ended_and_does_not_log() -> None:
    async with process_bench() as bench:
        run = await bench.run(bench.assignment("forks"))
        after = await bench.run(bench.assignment("pid", "t2"))

    assert run.output == -signal.SIGTERM
    assert run.logs == []
    assert after.error is None
