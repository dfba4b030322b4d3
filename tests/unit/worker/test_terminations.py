"""How running nodes are stopped, lose their lease, are given back, and end with the worker."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.testing import NodeRun
from tradewind.worker import Context, NodeStopExecution, node


class Gate:
    """Shows a test that a node has begun, and lets the node go on."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.events: list[Any] = []

    async def wait(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()

    async def stopped(self, bench: Bench, node_type: str, reason: str = "enough", by: str = "ada") -> NodeRun:
        """Start a node, stop it once it has begun, and return its result."""
        bench.executor.start(bench.assignment(node_type))
        await until(self.begun.is_set, f"{node_type} has begun")
        bench.stop(reason=reason, by=by)
        return await bench.end("t1")


async def test_termination_raises_in_waiting_async_node() -> None:
    gate = Gate()

    @node("long")
    async def long() -> None:
        try:
            await gate.wait()
        except NodeStopExecution as stop:
            gate.events.append((stop.reason, stop.source))
            raise

    async with Bench([long]) as bench:
        run = await gate.stopped(bench, "long", reason="market closed", by="ada")

    assert gate.events == [("market closed", "ada")]
    assert run.terminated
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("", "market closed (by ada)")


async def test_termination_passes_through_task_groups_and_timeouts() -> None:
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
        run = await gate.stopped(bench, "group")

    assert run.terminated
    assert cleaned == ["child"]


async def test_termination_reaches_busy_node_at_next_progress() -> None:
    gate = Gate()

    @node("busy")
    async def busy(ctx: Context) -> None:
        gate.begun.set()
        while True:
            await ctx.progress(1)

    async with Bench([busy]) as bench:
        assert (await gate.stopped(bench, "busy")).terminated


async def test_threaded_node_sees_requested_stop() -> None:
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
            run = await gate.stopped(bench, each.type, reason="enough")
        assert run.terminated, each
        assert run.error is not None
        assert run.error.message == "enough (by ada)"
        assert run.outputs == {}


async def test_stop_ends_node_that_waits_for_thread_at_once(caplog: pytest.LogCaptureFixture) -> None:
    gate, ran = Gate(), []

    @node("holds")
    def holds(ctx: Context) -> None:
        ran.append(ctx.node_id)
        gate.begun.set()
        gate.opened.wait(30)

    async with Bench([holds], threads=1) as bench:
        for token in ("t1", "t2", "t3"):
            bench.executor.start(bench.assignment("holds", token))
        await until(gate.begun.is_set, "the only thread is held")
        bench.stop("t2", grace=600)
        assert (await bench.end("t2")).terminated
        bench.executor.give_back_all("the worker leaves", grace=600)
        await until(lambda: bench.given_back == ["t3"], "what waits is given back")
        gate.opened.set()
        await bench.executor.wait_idle()

    assert ran == ["t1"]
    assert "goes on" not in caplog.text


async def test_node_that_outlasts_grace_is_reported_as_terminated(caplog: pytest.LogCaptureFixture) -> None:
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
                gate.events.append("ignored")

    async with Bench([deaf, stubborn]) as bench:
        for each in (deaf, stubborn):
            gate.begun.clear()
            bench.executor.start(bench.assignment(each.type, each.type))
            await until(gate.begun.is_set, "the node runs")
            bench.stop(each.type, grace=0.05)
            assert (await bench.end(each.type)).terminated
        gate.opened.set()

    assert gate.events[0] == "ignored"
    assert sorted(bench.ended) == ["deaf", "stubborn"]
    assert "is still running although it was told to stop (enough)" in caplog.text


async def test_node_stopped_before_its_first_line_never_runs() -> None:
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


async def test_node_can_terminate_itself() -> None:
    @node("closed")
    async def closed() -> None:
        raise NodeStopExecution("the exchange is closed")

    async with Bench([closed]) as bench:
        run = await bench.run(bench.assignment("closed"))

    assert run.terminated
    assert run.error is not None
    assert run.error.message == "the exchange is closed"


async def test_error_during_stop_is_reported_with_termination() -> None:
    gate = Gate()

    @node("clumsy")
    async def clumsy() -> None:
        try:
            await gate.wait()
        finally:
            raise RuntimeError("could not close the position")

    async with Bench([clumsy]) as bench:
        run = await gate.stopped(bench, "clumsy")

    assert run.terminated
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("NODE_ERROR", "could not close the position")


async def test_lost_lease_stops_node_without_report() -> None:
    gate = Gate()

    @node("long")
    async def long() -> None:
        try:
            await gate.wait()
        except NodeStopExecution as stop:
            gate.events.append(stop.reason)
            raise

    async with Bench([long]) as bench:
        bench.executor.start(bench.assignment("long"))
        await until(gate.begun.is_set, "the node waits")
        bench.executor.lose("t1", "given to another worker")
        bench.executor.lose("unknown", "never mind")
        assert not bench.executor.held
        await until(lambda: gate.events, "the node hears of it")

    assert gate.events == ["given to another worker"]
    assert (bench.ended, bench.given_back) == ([], [])


async def test_leaving_gives_back_stopped_nodes_and_completes_others() -> None:
    gate, finishing = Gate(), threading.Event()

    @node("waits")
    async def waits() -> None:
        await gate.wait()

    @node("finishes")
    def finishes() -> str:
        finishing.set()
        gate.opened.wait(10)
        return "done"

    async with Bench([waits, finishes]) as bench:
        bench.executor.start(bench.assignment("waits", "t1"))
        bench.executor.start(bench.assignment("finishes", "t2"))
        await until(lambda: gate.begun.is_set() and finishing.is_set(), "the nodes run")
        bench.executor.start(bench.assignment("waits", "t3"))
        bench.executor.give_back_all("the worker leaves", grace=5)
        await until(lambda: sorted(bench.given_back) == ["t1", "t3"], "what stopped is given back")
        gate.opened.set()
        await bench.executor.wait_idle()

    assert bench.ended == ["t2"]
    assert bench.runs["t2"].output == "done"


@pytest.mark.parametrize(("of_stop", "of_leaving"), [(600, 0.01), (0.1, 600)])
async def test_shorter_grace_counts_for_a_node_that_is_stopping_when_its_worker_leaves(
    of_stop: float, of_leaving: float
) -> None:
    gate, closed = Gate(), asyncio.Event()

    @node("closes")
    async def closes() -> None:
        try:
            await gate.wait()
        finally:
            gate.events.append("closing")
            await closed.wait()

    async with Bench([closes]) as bench:
        bench.executor.start(bench.assignment("closes"))
        await until(gate.begun.is_set, "the node runs")
        bench.stop(grace=of_stop)
        await until(lambda: gate.events, "the node is stopping")
        bench.executor.give_back_all("the worker leaves", grace=of_leaving)
        run = await bench.end("t1")

    assert run.terminated
    assert bench.given_back == []


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_worker_may_leave_while_the_grace_of_a_stopping_node_ends(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    gate = Gate()

    @node("long")
    async def long() -> None:
        await gate.wait()

    async def leaves() -> None:
        async with Bench([long]) as bench:
            bench.executor.start(bench.assignment("long"))
            await until(gate.begun.is_set, "the node runs")
            bench.stop(grace=0.0001)
            bench.executor.give_back_all("the worker leaves", grace=5)
            assert (await bench.end("t1")).terminated

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(leaves())


async def test_closing_executor_ends_running_nodes() -> None:
    gate = Gate()

    @node("waits")
    async def waits() -> None:
        try:
            await gate.wait()
        finally:
            gate.events.append("cleaned")

    async with Bench([waits]) as bench:
        bench.executor.start(bench.assignment("waits"))
        await until(gate.begun.is_set, "the node runs")

    assert gate.events == ["cleaned"]
    assert bench.ended == []


def test_nodes_cancelled_with_event_loop_report_nothing() -> None:
    gate = Gate()
    benches: list[Bench] = []

    @node("waits")
    async def waits() -> None:
        await gate.wait()

    async def work() -> None:
        async with Bench([waits]) as bench:
            benches.append(bench)
            bench.executor.start(bench.assignment("waits"))
            await bench.executor.wait_idle()

    async def main() -> None:
        working = asyncio.create_task(work())
        await until(gate.begun.is_set, "the node runs")
        assert not working.done()

    asyncio.run(main())

    assert (benches[0].ended, benches[0].given_back) == ([], [])
    assert not benches[0].executor.held


async def test_later_attempt_ends_earlier_one_on_same_worker() -> None:
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
        bench.executor.start(bench.assignment("long", "other"))
        bench.executor.start(first)
        await until(lambda: bench.executor.held["t1"].begun_ns, "the first attempt runs")
        second = work_pb2.NodeTaskAssignment(token="t2", node_task_id=first.node_task_id, node_type="long", attempt=2)
        assert (await bench.run(second)).output == 2
        await until(lambda: stopped == [1], "the first attempt is stopped")
        assert bench.ended == ["t2"]
        assert bench.executor.held["other"].stop is None
