"""Variables that nodes keep, as nodes see them."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from tests.waiting import until
from tradewind.testing import run_node
from tradewind.testing.memory import FakeMemory
from tradewind.worker import Context, MemoryFault, node
from tradewind.worker.attempt import Attempt
from tradewind.worker.memory import NodeMemory
from tradewind.worker.stopping import NodeStopExecution, Stop, StopKind


@node("moves_on", outputs=["seen"])
async def moves_on(ctx: Context, step: int = 1) -> list[Any]:
    before = await ctx.flow_memory.get("cursor", 0)
    after = await ctx.flow_memory.update("cursor", lambda cursor: cursor + step, 0)
    await ctx.cycle_memory.set("note", {"from": before})
    await ctx.flow_memory.delete("old")
    await ctx.set_result({"cursor": after})
    return [before, after, await ctx.cycle_memory.all(), await ctx.flow_memory.get("none")]


@node("moves_on_plainly", outputs=["seen"])
def moves_on_plainly(ctx: Context, step: int = 1) -> list[Any]:
    before = ctx.flow_memory.get("cursor", 0)
    after = ctx.flow_memory.update("cursor", lambda cursor: cursor + step, 0)
    ctx.cycle_memory.set("note", {"from": before})
    ctx.flow_memory.delete("old")
    ctx.set_result({"cursor": after})
    return [before, after, ctx.cycle_memory.all(), ctx.flow_memory.get("none")]


@pytest.mark.parametrize("asked", [moves_on, moves_on_plainly])
async def test_node_reads_and_sets_variables(asked: Any) -> None:
    run = await run_node(asked, config={"step": 5}, flow_memory={"cursor": 37, "old": 1})
    assert run.error is None, run.error
    assert run.output == [37, 42, {"note": {"from": 37}}, None]
    assert (run.flow_memory, run.cycle_memory, run.result) == ({"cursor": 42}, {"note": {"from": 37}}, {"cursor": 42})


@node("forgets")
async def forgets(ctx: Context) -> None:
    ctx.flow_memory.set("cursor", 1)


@node("forgets_result", process=True)
async def forgets_result(ctx: Context) -> None:
    await ctx.cycle_memory.get("x")
    ctx.set_result(1)


@node("returns_it")
async def returns_it(ctx: Context) -> Any:
    return ctx.cycle_memory.get("n")


@pytest.mark.parametrize(
    ("asked", "name"),
    [(forgets, "ctx.flow_memory.set"), (forgets_result, "ctx.set_result"), (returns_it, "ctx.cycle_memory.get")],
    ids=str,
)
async def test_node_fails_when_it_does_not_await_its_memory(asked: Any, name: str) -> None:
    run = await run_node(asked)
    assert run.error is not None
    assert (run.error.type, run.error.non_retryable) == ("NotAwaited", True)
    assert run.error.message == f"{name}(...) did nothing, because the node did not await it: write await {name}(...)"
    assert (run.flow_memory, run.result) == ({}, None)


@node("gives_up")
async def gives_up(ctx: Context) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(ctx.flow_memory.get("n"), 0)
    task = asyncio.create_task(ctx.flow_memory.set("n", 1))
    task.cancel()
    await asyncio.wait([task])


async def test_node_may_give_up_what_it_asked_before_it_begins() -> None:
    run = await run_node(gives_up)
    assert (run.error, run.flow_memory) == (None, {})


@node("leaves")
async def leaves(ctx: Context) -> None:
    both = asyncio.gather(ctx.flow_memory.set("a", 1), ctx.flow_memory.set("b", 2))
    ctx.progress(1)
    await both
    LEFT.append(asyncio.create_task(ctx.flow_memory.set("c", 3)))
    LEFT.append(asyncio.create_task(asyncio.wait_for(ctx.flow_memory.set("d", 4), 60)))


LEFT: list[asyncio.Task[Any]] = []


async def test_node_may_leave_its_memory_to_tasks() -> None:
    run = await run_node(leaves)
    assert run.error is None
    assert {"a": 1, "b": 2}.items() <= run.flow_memory.items()
    while LEFT:
        await LEFT.pop()


@node("fills", outputs=["done"])
async def fills(ctx: Context, size: int) -> bool:
    await ctx.flow_memory.set("text", "x" * size)
    return True


async def test_too_large_variable_fails_node() -> None:
    run = await run_node(fills, config={"size": 70_000})
    assert run.error is not None
    assert (run.error.type, run.flow_memory) == ("MemoryFault", {})


class Others(FakeMemory):
    """Other writers change the variables between the first reads and the writes that follow."""

    def __init__(self, times: int) -> None:
        super().__init__({}, {"count": 0})
        self.times = times

    def ask(self, method: str, request: bytes) -> Any:
        answer = super().ask(method, request)
        if method == "GetMemory" and self.times:
            self.times -= 1
            self.flow["count"] += 10
            self._versions["flow"] += 1
        return answer


def memory_over(memories: FakeMemory, cycle: int = 0, run_id: str = "r") -> tuple[NodeMemory, Attempt]:
    from tradewind.api.node_task_manager.v1 import work_pb2

    assignment = work_pb2.NodeTaskAssignment(
        token="t", flow_id="f", cycle=cycle, run_id=run_id, node_id="n", node_task_id=f"f:{cycle}:0:n"
    )
    attempt = Attempt(assignment, None)  # type: ignore[arg-type]
    attempt.memories = memories
    return NodeMemory(attempt, of_cycle=False), attempt


async def test_update_retries_on_values_of_other_writers() -> None:
    others = Others(3)
    memory, _ = memory_over(others)
    assert await memory.update("count", lambda count: count + 1) == 31
    assert others.flow == {"count": 31}


async def test_update_backs_off_under_contention(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        others.times = int(sum(pauses) < 20)

    others = Others(1)
    memory, _ = memory_over(others)
    monkeypatch.setattr(asyncio, "sleep", pause)
    await memory.update("count", lambda count: count + 1)
    # Hundreds of writers that retry ten times a second would leave each other no time between a read and a write.
    assert len(pauses) < 40


async def test_update_with_once_is_not_repeated_by_next_attempt() -> None:
    kept = FakeMemory({}, {"position": 100})
    # A run may get another number.
    for cycle in (0, 0, 1):
        memory, _ = memory_over(kept, cycle)
        assert await memory.update("position", lambda position: position + 50, once=True) == 150
    memory, _ = memory_over(kept, 1, "another")
    assert await memory.update("position", lambda position: position + 50, once=True) == 200


async def test_concurrent_updates_lose_nothing() -> None:
    kept = FakeMemory({}, {})
    memory, _ = memory_over(kept)
    await asyncio.gather(*(memory.update("count", lambda count: count + 1, 0) for _ in range(30)))
    assert kept.flow == {"count": 30}


class Counting(FakeMemory):
    """Counts the questions."""

    def __init__(self) -> None:
        super().__init__({}, {})
        self.asked = 0

    def ask(self, method: str, request: bytes) -> Any:
        self.asked += 1
        return super().ask(method, request)


async def test_updates_of_one_worker_take_turns() -> None:
    kept = Counting()
    memory, _ = memory_over(kept)

    def update_plainly() -> None:
        memory.update("count", lambda count: count + 1, 0)

    # Nobody's change is in the way of another's: each update reads once and writes once.
    await asyncio.gather(
        *(memory.update("count", lambda count: count + 1, 0) for _ in range(30)),
        *(asyncio.to_thread(update_plainly) for _ in range(30)),
    )
    assert (kept.flow, kept.asked) == ({"count": 60}, 120)


async def test_update_goes_ahead_if_turn_of_another_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.worker.memory._LONGEST_TURN", 0.05)
    begun, go_on = threading.Event(), threading.Event()
    memory, _ = memory_over(FakeMemory({}, {"count": 0}))

    def stuck(count: int) -> int:
        begun.set()
        go_on.wait(60)
        return count + 1

    def add_plainly() -> Any:
        return memory.update("count", lambda count: count + 10)

    late = asyncio.ensure_future(asyncio.to_thread(lambda: memory.update("count", stuck)))
    await asyncio.to_thread(begun.wait, 60)
    assert await memory.update("count", lambda count: count + 100) == 100
    assert await asyncio.to_thread(add_plainly) == 110
    go_on.set()
    assert await late == 111


async def test_update_that_is_stopped_leaves_its_turn_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.worker.memory._LONGEST_TURN", 600.0)
    answers: list[Future[bytes]] = []

    class Slow(FakeMemory):
        def ask(self, method: str, request: bytes) -> Any:
            answer: Future[bytes] = Future()
            answers.append(answer)
            return answer

    memory, attempt = memory_over(Slow({}, {}))
    first, second, third = [asyncio.ensure_future(memory.update("a", lambda a: 1)) for _ in range(3)]
    await until(lambda: answers, "the first update asks")
    second.cancel()
    await asyncio.wait([second])
    attempt.memories = kept = FakeMemory({}, {})
    first.cancel()
    assert await third == 1
    assert kept.flow == {"a": 1}


async def test_attempt_without_lease_changes_nothing() -> None:
    kept = FakeMemory({}, {"a": 1})
    memory, attempt = memory_over(kept)
    attempt.stop = Stop(StopKind.LEASE_LOST, "the lease is lost")
    with pytest.raises(NodeStopExecution):
        await memory.set("a", 2)
    assert kept.flow == {"a": 1}


async def test_unusable_values_and_missing_scheduler_raise_memory_fault() -> None:
    memory, attempt = memory_over(FakeMemory({}, {}))
    with pytest.raises(MemoryFault, match="not JSON"):
        await memory.set("a", object())
    with pytest.raises(MemoryFault, match=r"variables\.a\[0\] is nan"):
        await memory.set("a", [float("nan")])
    attempt.memories = None
    with pytest.raises(MemoryFault, match="no scheduler"):
        await memory.get("a")
    attempt.assignment.flow_id = ""
    with pytest.raises(MemoryFault, match="outside any flow"):
        await memory.get("a")
