"""How nodes run, fail, time out and are stopped."""

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, Emit, NodeStopExecution, node
from tradewind.worker.texts import MESSAGE_BYTES, TRACEBACK_BYTES


class Gate:
    """Lets a test see that a node has begun, and lets the node go on."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.told: list[Any] = []

    async def wait(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()


def deadline_in(seconds: float) -> work_pb2.NodeTaskAssignment:
    assignment = work_pb2.NodeTaskAssignment()
    assignment.deadline.FromNanoseconds(int((time.time() + seconds) * 1e9))
    return assignment


async def test_async_nodes_run_side_by_side() -> None:
    meeting = asyncio.Barrier(20)

    @node("meet")
    async def meet(ctx: Context) -> str:
        await meeting.wait()
        return ctx.node_id

    async with Bench([meet]) as bench:
        for index in range(20):
            bench.executor.start(bench.assignment("meet", f"t{index}"))
        await bench.executor.wait_idle()
        assert {token: run.output for token, run in bench.runs.items()} == {f"t{i}": f"t{i}" for i in range(20)}
        assert not bench.executor.held


async def test_plain_functions_run_in_threads_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=30)

    @node("meet")
    def meet() -> str:
        meeting.wait()
        return threading.current_thread().name

    async with Bench([meet], threads=3) as bench:
        for index in range(3):
            bench.executor.start(bench.assignment("meet", f"t{index}"))
        await bench.executor.wait_idle()
        names = {run.output for run in bench.runs.values()}

    assert len(names) == 3
    assert all(name.startswith("tradewind-node-") for name in names)


async def test_more_plain_functions_than_threads_wait_their_turn() -> None:
    @node("count")
    def count(ctx: Context) -> None: ...

    async with Bench([count], threads=2) as bench:
        for index in range(50):
            bench.executor.start(bench.assignment("count", f"t{index}"))
        await bench.executor.wait_idle()
        assert len(bench.ended) == 50


async def test_a_token_that_is_held_is_not_started_again() -> None:
    gate, calls = asyncio.Event(), []

    @node("once")
    async def once(ctx: Context) -> None:
        calls.append(ctx.node_id)
        await gate.wait()

    async with Bench([once]) as bench:
        bench.executor.start(bench.assignment("once"))
        bench.executor.start(bench.assignment("once"))
        await until(lambda: calls, "the node runs")
        gate.set()
        await bench.executor.wait_idle()
        assert (calls, bench.ended) == (["t1"], ["t1"])


async def test_an_unknown_node_type_fails() -> None:
    async with Bench([]) as bench:
        run = await bench.run(bench.assignment("nowhere"))

    assert run.error is not None
    assert (run.error.code, run.error.message) == (
        "UNKNOWN_NODE_TYPE",
        "this worker does not offer the node type nowhere",
    )


@pytest.mark.parametrize("threaded", [False, True])
async def test_an_exception_is_reported_with_the_frames_of_the_node_only(threaded: bool) -> None:
    def divide() -> float:
        return 1 / 0

    if threaded:
        failing = node("failing")(lambda: divide())
    else:

        @node("failing")
        async def failing() -> float:
            return divide()

    async with Bench([failing]) as bench:
        run = await bench.run(bench.assignment("failing"))

    error = run.error
    assert error is not None
    assert (error.code, error.type, error.message) == ("NODE_ERROR", "ZeroDivisionError", "division by zero")
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert "return 1 / 0" in error.traceback
    assert "tradewind/worker" not in error.traceback
    assert not run.terminated


async def test_long_messages_and_tracebacks_are_cut() -> None:
    @node("deep")
    async def deep() -> None:
        raise ValueError("ä" * 100_000)

    async with Bench([deep]) as bench:
        run = await bench.run(bench.assignment("deep"))

    assert run.error is not None
    assert MESSAGE_BYTES - 8 <= len(run.error.message.encode()) <= MESSAGE_BYTES
    assert TRACEBACK_BYTES - 8 <= len(run.error.traceback.encode()) <= TRACEBACK_BYTES
    assert run.error.traceback.startswith("Traceback (most recent call last)")


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("own"), StopIteration()])
@pytest.mark.parametrize("threaded", [False, True])
async def test_nothing_that_a_node_raises_ends_the_worker(raised: BaseException, threaded: bool) -> None:
    def plain() -> None:
        raise raised

    async def coroutine() -> None:
        raise raised

    harmless = node("harmless")(lambda: 1)
    rude: Any = node("rude")(plain if threaded else coroutine)
    async with Bench([rude, harmless]) as bench:
        run = await bench.run(bench.assignment("rude"))
        after = await bench.run(bench.assignment("harmless", "t2"))

    assert run.error is not None
    assert run.error.code == "NODE_ERROR"
    assert after.output == 1


async def test_an_exception_without_a_usable_message_is_reported_by_its_type() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @node("rude")
    async def rude(kind: str) -> None:
        raise Rude if kind == "rude" else AssertionError

    async with Bench([rude]) as bench:
        hidden = await bench.run(bench.assignment("rude", config_json='{"kind": "rude"}'))
        empty = await bench.run(bench.assignment("rude", "t2", config_json='{"kind": "empty"}'))

    assert hidden.error is not None
    assert hidden.error.message.endswith("Rude (its message cannot be shown)")
    assert empty.error is not None
    assert empty.error.message == "AssertionError"


async def test_a_wrong_result_is_a_failure_of_the_node() -> None:
    @node("branch", outputs=["buy", "sell"])
    async def branch(value: int) -> Emit | int:
        return value if value else Emit(hold=1)

    async with Bench([branch]) as bench:
        no_emit = await bench.run(bench.assignment("branch", config_json='{"value": 1}'))
        wrong = await bench.run(bench.assignment("branch", "t2", config_json='{"value": 0}'))

    assert no_emit.error is not None
    assert no_emit.error.code == "INVALID_OUTPUT"
    assert wrong.error is not None
    assert wrong.error.message == 'the node has no output handle "hold"; there are buy, sell'


async def test_termination_raises_in_an_async_node_where_it_waits() -> None:
    gate = Gate()

    @node("long")
    async def long() -> None:
        try:
            await gate.wait()
        except NodeStopExecution as stop:
            gate.told.append((stop.reason, stop.source))
            raise

    async with Bench([long]) as bench:
        bench.executor.start(bench.assignment("long"))
        await until(gate.begun.is_set, "the node waits")
        bench.stop(reason="market closed", by="ada")
        run = await bench.end("t1")

    assert gate.told == [("market closed", "ada")]
    assert run.terminated
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("", "market closed (by ada)")


async def test_termination_passes_task_groups_and_timeouts_and_leaves_nothing_behind() -> None:
    gate, cleaned = Gate(), []

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("child")

    @node("group")
    async def group() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(child())
            await asyncio.sleep(0)
            gate.begun.set()
        cleaned.append("never")

    async with Bench([group]) as bench:
        bench.executor.start(bench.assignment("group"))
        await until(gate.begun.is_set, "the group waits for its child")
        bench.stop()
        run = await bench.end("t1")

    assert run.terminated
    assert cleaned == ["child"]


async def test_termination_reaches_a_calculating_node_at_its_next_progress() -> None:
    gate = Gate()

    @node("busy")
    async def busy(ctx: Context) -> None:
        gate.begun.set()
        while True:
            await ctx.progress(1)

    async with Bench([busy]) as bench:
        bench.executor.start(bench.assignment("busy"))
        await until(gate.begun.is_set, "the node calculates")
        bench.stop()
        assert (await bench.end("t1")).terminated


async def test_a_thread_sees_that_a_stop_is_requested() -> None:
    gate = Gate()

    @node("polls")
    def polls(ctx: Context) -> str:
        gate.begun.set()
        while not ctx.stop_requested:
            time.sleep(0.001)
        return "early"

    @node("checks")
    def checks(ctx: Context) -> None:
        gate.begun.set()
        while True:
            ctx.check_stop()
            time.sleep(0.001)

    for each in (polls, checks):
        gate.begun.clear()
        async with Bench([each]) as bench:
            bench.executor.start(bench.assignment(each.type))
            await until(gate.begun.is_set, "the thread runs")
            bench.stop(reason="enough")
            run = await bench.end("t1")
        assert run.terminated, each
        assert run.error is not None
        assert run.error.message == "enough (by ada)"
        assert run.outputs == {}


async def test_a_node_that_outstays_its_grace_is_reported_without_it(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()

    @node("deaf")
    def deaf() -> None:
        gate.begun.set()
        gate.opened.wait(10)

    @node("stubborn")
    async def stubborn() -> None:
        while not gate.opened.is_set():
            try:
                await gate.wait()
            except NodeStopExecution:
                gate.told.append("ignored")

    async with Bench([deaf, stubborn]) as bench:
        for each in (deaf, stubborn):
            gate.begun.clear()
            bench.executor.start(bench.assignment(each.type, each.type))
            await until(gate.begun.is_set, "the node runs")
            bench.stop(each.type, grace=0.05)
            assert (await bench.end(each.type)).terminated
        gate.opened.set()

    assert gate.told[0] == "ignored"
    assert sorted(bench.ended) == ["deaf", "stubborn"]
    assert "goes on although it was told to stop (enough)" in caplog.text


async def test_a_stop_before_the_first_line_keeps_the_node_from_running() -> None:
    calls: list[str] = []
    occupied = Gate()

    @node("quick")
    async def quick() -> None:
        calls.append("quick")

    @node("queued")
    def queued(first: bool) -> None:
        if not first:
            calls.append("queued")
        occupied.begun.set()
        occupied.opened.wait(10)

    async with Bench([quick, queued], threads=1) as bench:
        bench.executor.start(bench.assignment("quick"))
        bench.stop()
        bench.executor.start(bench.assignment("queued", "t2", config_json='{"first": true}'))
        await until(occupied.begun.is_set, "the only thread is taken")
        bench.executor.start(bench.assignment("queued", "t3", config_json='{"first": false}'))
        await until(lambda: bench.executor.held["t3"].begun_ns, "the second waits for a thread")
        bench.stop("t3")
        occupied.opened.set()
        runs = [await bench.end(token) for token in ("t1", "t2", "t3")]

    assert [run.terminated for run in runs] == [True, False, True]
    assert calls == []


async def test_a_node_can_end_itself_as_terminated() -> None:
    @node("closed")
    async def closed() -> None:
        raise NodeStopExecution("the exchange is closed")

    async with Bench([closed]) as bench:
        run = await bench.run(bench.assignment("closed"))

    assert run.terminated
    assert run.error is not None
    assert run.error.message == "the exchange is closed"


async def test_an_error_while_stopping_is_told_with_the_termination() -> None:
    gate = Gate()

    @node("clumsy")
    async def clumsy() -> None:
        try:
            await gate.wait()
        finally:
            raise RuntimeError("could not close the position")

    async with Bench([clumsy]) as bench:
        bench.executor.start(bench.assignment("clumsy"))
        await until(gate.begun.is_set, "the node waits")
        bench.stop()
        run = await bench.end("t1")

    assert run.terminated
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("NODE_ERROR", "could not close the position")


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_deadline_stops_the_node_with_timeout(threaded: bool) -> None:
    told: list[str] = []

    async def waits(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except NodeStopExecution as stop:
            told.append(stop.reason)
            raise

    def polls(ctx: Context) -> None:
        while not ctx.stop_requested:
            time.sleep(0.001)

    slow: Any = node("slow")(polls if threaded else waits)
    quick = node("quick")(lambda: 1)
    async with Bench([slow, quick]) as bench:
        late = bench.assignment("slow")
        late.MergeFrom(deadline_in(0.1))
        later = bench.assignment("quick", "t2")
        later.MergeFrom(deadline_in(60))
        bench.executor.start(later)
        run = await bench.run(late)

    assert run.error is not None
    assert run.error.code == "TIMEOUT"
    assert run.error.message.startswith("the node's deadline has passed, 0.")
    assert not run.terminated
    assert bench.runs["t2"].output == 1
    assert len(told) == (0 if threaded else 1)


async def test_deadlines_are_watched_one_after_another() -> None:
    @node("slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    async with Bench([slow]) as bench:
        for token, seconds in (("t3", 0.3), ("t1", 0.1), ("t2", 0.2)):
            assignment = bench.assignment("slow", token)
            assignment.MergeFrom(deadline_in(seconds))
            bench.executor.start(assignment)
        await bench.executor.wait_idle()

    assert bench.ended == ["t1", "t2", "t3"]


async def test_a_deadline_that_has_passed_already_hints_at_the_clock() -> None:
    calls: list[int] = []

    @node("slow")
    async def slow() -> None:
        calls.append(1)

    async with Bench([slow]) as bench:
        assignment = bench.assignment("slow")
        assignment.MergeFrom(deadline_in(-90))
        run = await bench.run(assignment)

    assert run.error is not None
    assert run.error.code == "TIMEOUT"
    assert run.error.message.startswith("the deadline had passed 90.0 s before this worker got the node task; ")
    assert calls == []


async def test_a_lost_lease_stops_the_node_and_reports_nothing() -> None:
    gate = Gate()

    @node("long")
    async def long() -> None:
        try:
            await gate.wait()
        except NodeStopExecution as stop:
            gate.told.append(stop.reason)
            raise

    async with Bench([long]) as bench:
        bench.executor.start(bench.assignment("long"))
        await until(gate.begun.is_set, "the node waits")
        bench.executor.lose("t1", "given to another worker")
        bench.executor.lose("unknown", "never mind")
        assert not bench.executor.held
        await until(lambda: gate.told, "the node hears of it")

    assert gate.told == ["given to another worker"]
    assert (bench.ended, bench.given_back) == ([], [])


async def test_leaving_gives_back_what_stops_and_completes_what_did_not_notice() -> None:
    gate = Gate()

    @node("waits")
    async def waits() -> None:
        await gate.wait()

    @node("finishes")
    def finishes() -> str:
        gate.opened.wait(10)
        return "done"

    async with Bench([waits, finishes]) as bench:
        bench.executor.start(bench.assignment("waits", "t1"))
        bench.executor.start(bench.assignment("finishes", "t2"))
        await until(gate.begun.is_set, "the nodes run")
        bench.executor.start(bench.assignment("waits", "t3"))
        bench.executor.give_back_all("the worker leaves", grace=5)
        await until(lambda: sorted(bench.given_back) == ["t1", "t3"], "what stopped is given back")
        gate.opened.set()
        await bench.executor.wait_idle()

    assert bench.ended == ["t2"]
    assert bench.runs["t2"].output == "done"


async def test_closing_ends_what_runs() -> None:
    gate = Gate()

    @node("waits")
    async def waits() -> None:
        try:
            await gate.wait()
        finally:
            gate.told.append("cleaned")

    async with Bench([waits]) as bench:
        bench.executor.start(bench.assignment("waits"))
        await until(gate.begun.is_set, "the node runs")

    assert gate.told == ["cleaned"]
    assert bench.ended == []


async def test_a_loop_that_cancels_all_its_tasks_ends_nodes_in_silence() -> None:
    gate = Gate()

    @node("waits")
    async def waits() -> None:
        await gate.wait()

    async with Bench([waits]) as bench:
        bench.executor.start(bench.assignment("waits"))
        await until(gate.begun.is_set, "the node runs")
        task = bench.executor.held["t1"].task
        assert task is not None
        task.cancel()
        await bench.executor.wait_idle()

    assert bench.ended == []


async def test_a_later_attempt_of_a_node_ends_the_one_that_still_runs_here() -> None:
    stopped: list[int] = []

    @node("long")
    async def long(ctx: Context) -> int:
        try:
            if ctx.attempt == 1:
                await asyncio.Event().wait()
        except NodeStopExecution:
            stopped.append(ctx.attempt)
            raise
        return ctx.attempt

    async with Bench([long]) as bench:
        first = bench.assignment("long", "t1")
        bench.executor.start(first)
        await until(lambda: bench.executor.held["t1"].begun_ns, "the first attempt runs")
        second = work_pb2.NodeTaskAssignment(token="t2", node_task_id=first.node_task_id, node_type="long", attempt=2)
        assert (await bench.run(second)).output == 2
        await until(lambda: stopped == [1], "the first attempt is stopped")
        assert bench.ended == ["t2"]
