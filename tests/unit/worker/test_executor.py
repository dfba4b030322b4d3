"""How nodes run, and how they fail."""

import asyncio
import gc
import re
import threading
import time
import weakref
from typing import Any

import pytest

from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.worker import Context, Emit, Fatal, NodeStopExecution, node, running
from tradewind.worker.loop_watch import LoopWatch
from tradewind.worker.texts import MESSAGE_BYTES, TRACEBACK_BYTES


async def test_async_nodes_run_concurrently() -> None:
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


async def test_plain_functions_run_concurrently_in_threads() -> None:
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


async def test_more_plain_functions_than_threads_all_run() -> None:
    @node("count")
    def count(ctx: Context) -> None: ...

    async with Bench([count], threads=2) as bench:
        for index in range(50):
            bench.executor.start(bench.assignment("count", f"t{index}"))
        await bench.executor.wait_idle()
        assert len(bench.ended) == 50


async def test_held_token_is_not_started_again() -> None:
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


async def test_unknown_node_type_fails() -> None:
    async with Bench([]) as bench:
        run = await bench.run(bench.assignment("nowhere"))

    assert run.error is not None
    assert (run.error.code, run.error.message) == (
        "UNKNOWN_NODE_TYPE",
        "this worker does not offer the node type nowhere",
    )


@pytest.mark.parametrize("threaded", [False, True])
async def test_exception_is_reported_with_frames_of_node_only(threaded: bool) -> None:
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


async def test_long_messages_and_tracebacks_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    @node("loud")
    async def loud(lines: int) -> None:
        raise ValueError("\n".join(["ä" * (100_000 // lines)] * lines))

    async with Bench([loud]) as bench:
        one = await bench.run(bench.assignment("loud", config_json='{"lines": 1}'))
        logged = caplog.text
        many = await bench.run(bench.assignment("loud", "t2", config_json='{"lines": 100}'))

    for run in (one, many):
        assert run.error is not None
        assert MESSAGE_BYTES - 8 <= len(run.error.message.encode()) <= MESSAGE_BYTES
        assert len(run.error.traceback.encode()) <= TRACEBACK_BYTES
        assert run.error.traceback.startswith("Traceback (most recent call last)")
    assert many.error is not None
    assert len(many.error.traceback.encode()) >= TRACEBACK_BYTES - 8
    assert one.error is not None
    # A line that is too long does not displace other lines.
    assert 'raise ValueError("' in one.error.traceback
    assert " ... \n ... \n" not in one.error.traceback
    assert len(logged.encode()) < 2 * MESSAGE_BYTES


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("own"), StopIteration(), GeneratorExit()]
)
@pytest.mark.parametrize("threaded", [False, True])
async def test_no_exception_of_node_ends_worker(raised: BaseException, threaded: bool) -> None:
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


async def test_node_that_cancels_itself_fails() -> None:
    @node("hasty")
    async def hasty() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.Event().wait()

    async with Bench([hasty]) as bench:
        run = await bench.run(bench.assignment("hasty"))

    assert run.error is not None
    assert (run.error.code, run.error.type) == ("NODE_ERROR", "CancelledError")


@pytest.mark.parametrize("after", [0, 1])
async def test_node_that_blocks_event_loop_is_logged(
    after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "LONG_TURN_S", 0.01)

    @node("calculates")
    async def calculates() -> None:
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
        for _ in range(after):
            await asyncio.sleep(0.05)

    async with Bench([calculates]) as bench:
        run = await bench.run(bench.assignment("calculates"))

    (line,) = run.logs
    assert line.level == "WARNING"
    assert re.match(r"the node held the worker's event loop for 0\.\d s without awaiting", line.message)
    assert f"flow:0:0:t1: {line.message}" in caplog.text


@pytest.mark.parametrize("by_task", [False, True])
async def test_node_that_holds_event_loop_is_logged_meanwhile(
    by_task: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "LONG_TURN_S", 0.01)

    @node("calculates")
    async def calculates() -> bool:
        async def calculate() -> bool:
            deadline = time.monotonic() + 10
            while "held the worker's event loop" not in caplog.text and time.monotonic() < deadline:
                pass
            return "held the worker's event loop" in caplog.text

        return await (asyncio.create_task(calculate()) if by_task else calculate())

    async with Bench([calculates], watch=LoopWatch(lambda: True)) as bench:
        assert (await bench.run(bench.assignment("calculates"))).output is True

    message = caplog.messages[0]
    holder = "a task" if by_task else "flow:0:0:t1"
    assert message.startswith(f"{holder} has held the worker's event loop for more than 0.01 s without awaiting")
    assert re.search(r"in calculate\n    while \"held", message)
    if not by_task:
        assert "tradewind/worker" not in message


async def test_loop_is_looked_at_again_only_while_nodes_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LONG_TURN_S", 0.01)
    looks = 0

    def busy() -> bool:
        nonlocal looks
        looks += 1
        return looks < 3

    watch = LoopWatch(busy)
    try:
        watch.node_begins()
        await until(lambda: looks == 3, "the loop was seen to turn three times")
        watch.node_begins()
        await until(lambda: looks == 4, "and once more after another node")
    finally:
        watch.close()


@pytest.mark.parametrize("threaded", [False, True])
async def test_failed_node_releases_its_objects_without_garbage_collector(threaded: bool) -> None:
    class Large:
        pass

    left: list[weakref.ref[Large]] = []

    def plain() -> None:
        large = Large()
        left.append(weakref.ref(large))
        raise ValueError(large)

    async def coroutine() -> None:
        plain()

    failing: Any = node("failing")(plain if threaded else coroutine)
    gc.disable()
    try:
        async with Bench([failing]) as bench:
            assert (await bench.run(bench.assignment("failing"))).error
            await until(lambda: left[0]() is None, "it is let go")
    finally:
        gc.enable()


async def test_exception_without_usable_message_is_reported_by_type() -> None:
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
    assert hidden.error.message == "Rude (its message cannot be shown)"
    assert empty.error is not None
    assert (empty.error.type, empty.error.message) == ("AssertionError", "(no message)")


class CauseRaises(Fatal):
    """Its traceback cannot be made."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise GeneratorExit


class TextRaises(Exception):
    """Its text raises more than an Exception."""

    def __str__(self) -> str:
        raise GeneratorExit


class StopUnshown(NodeStopExecution):
    """A stop without a reason, whose text cannot be shown."""

    def __init__(self) -> None: ...

    def __str__(self) -> str:
        raise GeneratorExit


def deep_group() -> BaseException:
    """Return a group in a group, and so on, deeper than functions may call each other."""
    error: Exception = ValueError("at the bottom")
    for _ in range(3000):
        error = ExceptionGroup("orders", [error])
    return error


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize(
    ("error", "type", "message"),
    [
        (CauseRaises("busy"), "CauseRaises", "its error cannot be described"),
        (TextRaises(), "TextRaises", "TextRaises (its message cannot be shown)"),
        (deep_group(), "ValueError", "at the bottom"),
    ],
)
async def test_error_that_is_hard_to_describe_is_reported(
    threaded: bool, error: BaseException, type: str, message: str
) -> None:
    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    failing: Any = node("failing")(plain if threaded else coroutine)
    async with Bench([failing]) as bench:
        reported = (await bench.run(bench.assignment("failing"))).error

    assert reported is not None
    assert (reported.code, reported.type, reported.message) == ("NODE_ERROR", type, message)
    assert reported.non_retryable == isinstance(error, Fatal)


async def test_stop_without_usable_reason_terminates_node() -> None:
    @node("ends_itself")
    async def ends_itself() -> None:
        raise StopUnshown

    async with Bench([ends_itself]) as bench:
        run = await bench.run(bench.assignment("ends_itself"))

    assert run.terminated
    assert run.error is not None
    assert run.error.message == "StopUnshown (its message cannot be shown)"


async def test_invalid_result_fails_node() -> None:
    @node("branch", outputs=["buy", "sell"])
    async def branch(value: int) -> Emit | int:
        return value if value else Emit(hold=1)

    async with Bench([branch]) as bench:
        no_emit = await bench.run(bench.assignment("branch", config_json='{"value": 1}'))
        wrong = await bench.run(bench.assignment("branch", "t2", config_json='{"value": 0}'))

    assert no_emit.error is not None
    assert no_emit.error.code == "INVALID_OUTPUT"
    assert wrong.error is not None
    assert wrong.error.message == 'the node has no output handle "hold"; choose from buy, sell'
