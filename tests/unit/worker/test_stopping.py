"""How a node learns of its stop, and what it may do during its grace."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, NodeStopExecution, NodeStopExecutionException, node
from tradewind.worker.running import run_to_end


async def test_source_of_stop_without_requester_is_system() -> None:
    stops: list[tuple[str, str]] = []

    @node("waits")
    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except NodeStopExecutionException as stop:
            stops.append((stop.reason, stop.source))
            raise

    async with Bench([waits]) as bench:
        bench.executor.start(bench.assignment("waits"))
        await until(lambda: bench.executor.held["t1"].begun_ns, "the node waits")
        # It may cross the report of another that has just ended.
        bench.executor.terminate(work_pb2.NodeTaskTermination(token="t0"))
        bench.executor.terminate(work_pb2.NodeTaskTermination(token="t1"))
        assert (await bench.end("t1")).terminated

    assert stops == [("stopped", "system")]


@pytest.mark.parametrize("threaded", [False, True])
async def test_stopped_node_releases_its_objects_without_garbage_collector(threaded: bool) -> None:
    class Large:
        pass

    left: list[weakref.ref[Large]] = []

    def plain(ctx: Context) -> None:
        large = Large()
        left.append(weakref.ref(large))
        while True:
            ctx.check_stop()
            time.sleep(0.001)

    async def coroutine() -> None:
        large = Large()
        left.append(weakref.ref(large))
        await asyncio.Event().wait()

    stopped: Any = node("stopped")(plain if threaded else coroutine)
    gc.disable()
    try:
        async with Bench([stopped]) as bench:
            bench.executor.start(bench.assignment("stopped"))
            await until(lambda: left, "the node runs")
            bench.stop()
            assert (await bench.end("t1")).terminated
            await until(lambda: left[0]() is None, "it is let go")
    finally:
        gc.enable()


async def test_node_can_raise_stop_exception_of_specification() -> None:
    @node("checks")
    def checks(ctx: Context) -> None:
        raise NodeStopExecutionException(reason="User requested stop", source="system")

    async with Bench([checks]) as bench:
        run = await bench.run(bench.assignment("checks"))

    assert run.terminated
    assert run.error is not None
    assert run.error.message == "User requested stop (by system)"


async def test_node_can_wait_and_log_but_not_emit_during_grace() -> None:
    closed = asyncio.Event()

    @node("trades")
    async def trades(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except NodeStopExecution:
            ctx.log("closing")
            await closed.wait()
            await ctx.progress(90, "closed")
        return "closed"

    async with Bench([trades]) as bench:
        bench.executor.start(bench.assignment("trades"))
        await until(lambda: bench.executor.held["t1"].begun_ns, "the node waits")
        bench.stop(grace=30)
        await until(lambda: "t1" in bench.runs, "it cleans up")
        assert "t1" in bench.executor.held
        closed.set()
        run = await bench.end("t1")

    assert run.terminated
    assert [line.message for line in run.logs] == ["closing"]
    assert run.progress == [(90, "closed")]
    assert run.outputs == {}


async def test_logs_and_progress_after_grace_are_dropped() -> None:
    opened, left = threading.Event(), threading.Event()

    @node("late")
    def late(ctx: Context) -> str:
        ctx.progress(1)
        opened.wait(10)
        ctx.progress(99)
        ctx.log("too late")
        left.set()
        return "late"

    async with Bench([late]) as bench:
        bench.executor.start(bench.assignment("late"))
        await until(lambda: "t1" in bench.runs, "the node runs")
        bench.stop(grace=0.01)
        assert (await bench.end("t1")).terminated
        opened.set()
        await until(left.is_set, "the thread ends after all")

    assert bench.ended == ["t1"]
    assert (bench.runs["t1"].logs, bench.runs["t1"].progress) == ([], [(1, "")])


async def test_node_can_use_timeout_during_grace() -> None:
    """A cancellation after the stop has been announced comes from somewhere else."""
    ended: list[str] = []

    @node("closes")
    async def closes() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append("closed without an answer")

    async with Bench([closes]) as bench:
        bench.executor.start(bench.assignment("closes"))
        await until(lambda: bench.executor.held["t1"].begun_ns, "the node waits")
        bench.stop()
        assert (await bench.end("t1")).terminated

    assert ended == ["closed without an answer"]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_node_that_stops_the_event_loop_ends_neither_it_nor_others(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def stops_the_loop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.001)
        return "went on"

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert run_to_end(runner.get_loop(), stops_the_loop()) == "went on"


async def test_what_a_node_returns_because_its_worker_leaves_is_no_result() -> None:
    @node("polls")
    def polls(ctx: Context) -> str:
        while not ctx.stop_requested:
            time.sleep(0.001)
        return "only a part"

    @node("waits")
    async def waits() -> str:
        with contextlib.suppress(NodeStopExecution):
            await asyncio.Event().wait()
        return "only a part"

    async with Bench([polls, waits]) as bench:
        bench.executor.start(bench.assignment("polls", "t1"))
        bench.executor.start(bench.assignment("waits", "t2"))
        held = bench.executor.held
        await until(lambda: held["t1"].in_thread and held["t2"].begun_ns, "the nodes run")
        bench.executor.give_back_all("the worker leaves", grace=600)
        await bench.executor.wait_idle()

    assert (sorted(bench.given_back), bench.ended) == (["t1", "t2"], [])
