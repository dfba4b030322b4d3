"""What happens to nodes whose deadline passes."""

import asyncio
import re
import threading
import time
from typing import Any

import pytest

from tests.unit.worker.attempts import Bench
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, NodeStopExecution, node


def deadline_in(seconds: float) -> work_pb2.NodeTaskAssignment:
    assignment = work_pb2.NodeTaskAssignment()
    assignment.deadline.FromNanoseconds(int((time.time() + seconds) * 1e9))
    return assignment


@pytest.mark.parametrize("threaded", [False, True])
async def test_deadline_stops_node_with_timeout(threaded: bool) -> None:
    stop_reasons: list[str] = []

    async def waits(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except NodeStopExecution as stop:
            stop_reasons.append(stop.reason)
            raise

    def polls(ctx: Context) -> None:
        while not ctx.stop_requested:
            time.sleep(0.001)

    slow: Any = node("slow")(polls if threaded else waits)
    quick = node("quick")(lambda: 1)
    async with Bench([slow, quick]) as bench:
        late = bench.assignment("slow")
        late.MergeFrom(deadline_in(0.5))
        later = bench.assignment("quick", "t2")
        later.MergeFrom(deadline_in(60))
        bench.executor.start(later)
        run = await bench.run(late)

    assert run.error is not None
    assert run.error.code == "TIMEOUT"
    assert re.match(r"the node's deadline has passed, \d+\.\d s after it began", run.error.message)
    assert not run.terminated
    assert bench.runs["t2"].output == 1
    assert len(stop_reasons) == (0 if threaded else 1)


async def test_timeout_of_node_that_could_not_begin_blames_busy_worker() -> None:
    @node("hog")
    async def hog() -> None:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass

    @node("late")
    async def late() -> None:
        await asyncio.Event().wait()

    async with Bench([hog, late]) as bench:
        bench.executor.start(bench.assignment("hog", "t1"))
        behind = bench.assignment("late", "t2")
        behind.MergeFrom(deadline_in(0.1))
        run = await bench.run(behind)

    assert run.error is not None
    assert run.error.code == "TIMEOUT"
    assert run.error.message.startswith("the node's deadline passed before its worker could begin it")


async def test_timeout_of_node_that_found_no_free_thread_says_so() -> None:
    go_on = threading.Event()
    busy, idle = node("busy")(lambda: go_on.wait(60)), node("idle")(lambda: 1)
    async with Bench([busy, idle], threads=1) as bench:
        bench.executor.start(bench.assignment("busy"))
        behind = bench.assignment("idle", "t2")
        behind.MergeFrom(deadline_in(0.2))
        run = await bench.run(behind)
        go_on.set()
        await bench.end("t1")

    assert run.error is not None
    assert run.error.code == "TIMEOUT"
    assert re.match(
        r"the node's deadline has passed, \d\.\d s after its worker took it, and no thread was free", run.error.message
    )


async def test_deadlines_expire_in_order_of_time() -> None:
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


async def test_later_deadline_does_not_put_off_an_earlier_one() -> None:
    @node("slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    async with Bench([slow]) as bench:
        for token, seconds in (("soon", 0.1), ("late", 600)):
            assignment = bench.assignment("slow", token)
            assignment.MergeFrom(deadline_in(seconds))
            bench.executor.start(assignment)
        run = await bench.end("soon")

    assert run.error is not None
    assert run.error.code == "TIMEOUT"


async def test_jump_of_system_clock_ends_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, clock = asyncio.Event(), time.time

    @node("steady")
    async def steady() -> int:
        await go_on.wait()
        return 1

    @node("slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    async with Bench([steady, slow]) as bench:
        for node_type, seconds in (("steady", 600), ("slow", 0.1)):
            assignment = bench.assignment(node_type, node_type)
            assignment.MergeFrom(deadline_in(seconds))
            bench.executor.start(assignment)
        monkeypatch.setattr(time, "time", lambda: clock() + 3600)
        await bench.end("slow")
        go_on.set()
        run = await bench.end("steady")

    assert run.output == 1


async def test_deadline_in_the_past_hints_at_clock_difference() -> None:
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
    assert run.error.message.startswith("the deadline passed 90.0 s before this worker got the node task; ")
    assert calls == []
