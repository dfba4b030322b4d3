"""Nodes that a worker goes on with by itself."""

import asyncio
import time
from contextvars import ContextVar
from typing import Any

import pytest

from tests.unit.worker.attempts import Bench
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, Emit, Node, executor, node
from tradewind.worker.eager import next_assignment
from tradewind.worker.waiting import Suspension


@pytest.fixture(autouse=True)
def long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a turn as long when a node holds the loop, but not when the machine delays the test for a moment."""
    monkeypatch.setattr(executor, "LONG_TURN", 0.1)


@node("source")
async def source() -> int:
    return 1


@node("add", eager=True)
async def add(n: int, by: int = 1) -> int:
    return n + by


@node("add_in_thread", eager=True)
def add_in_thread(n: int) -> int:
    return n + 1


@node("late_add")
async def late_add(n: int) -> int:
    return n + 1


@node("fail", eager=True)
async def fail(n: int) -> int:
    raise ValueError(f"not {n}")


@node("choose", outputs=["buy", "sell"], eager=True)
async def choose(n: int) -> Emit:
    return Emit(sell=n)


@node("block", eager=True)
async def block(n: int) -> int:
    began = time.perf_counter()
    while time.perf_counter() - began < executor.LONG_TURN * 2:
        pass
    return n


@node("hold", eager=True)
async def hold(n: int, ctx: Context) -> int:
    await asyncio.sleep(60)
    return n


NODES: list[Node[..., Any]] = [source, add, add_in_thread, late_add, fail, choose, block, hold]


def chain(*types: str, **fields: Any) -> work_pb2.NodeTaskAssignment:
    """Return an assignment of a source with the steps that may follow it, one after the other: n1, n2 and so on."""
    given = work_pb2.NodeTaskAssignment(
        token="3~flow:7:0:n0~1~abc",
        node_task_id="flow:7:0:n0",
        flow_id="flow",
        cycle=7,
        run_id="r7",
        component_id="0",
        node_id="n0",
        node_type="source",
        attempt=1,
        user_id="ann",
        **fields,
    )
    for at, node_type in enumerate(types):
        given.eager_steps.add(
            after_node_id=f"n{at}", handle="output", node_id=f"n{at + 1}", node_type=node_type, input_handle="n"
        )
    return given


async def run(bench: Bench, given: work_pb2.NodeTaskAssignment, ends: int) -> list[str]:
    bench.executor.eager_enabled = True
    bench.executor.start(given)
    await until(lambda: len(bench.ended) == ends, "all have ended")
    await until(lambda: not bench.executor.held, "nothing is held")
    return bench.ended


async def test_chain_runs_in_one_turn_of_event_loop() -> None:
    async with Bench(NODES) as bench:
        bench.executor.eager_enabled = True
        bench.executor.start(chain("add", "add", "add"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [bench.runs[token].output for token in bench.ended] == [1, 2, 3, 4]
        tokens = [token.split("~") for token in bench.ended]
        assert [each[:3] for each in tokens] == [["3", f"flow:7:0:n{at}", "1"] for at in range(4)]
        assert len({each[3] for each in tokens}) == 4
        assert [bench.eager_tokens[token] for token in bench.ended] == [*bench.ended[1:], ""]
        assert not bench.executor.held


async def test_eager_node_combines_assignment_and_step() -> None:
    seen = []

    @node("look", eager=True)
    async def look(n: int, factor: int, ctx: Context) -> int:
        seen.append((n, factor, ctx.flow_id, ctx.cycle, ctx.node_id, ctx.attempt, ctx.idempotency_key))
        return n

    given = chain("look", run_inputs_json='{"n": 5}')
    given.eager_steps[0].config_json = '{"factor": 3}'
    given.eager_steps[0].timeout.FromSeconds(60)
    given.deadline.FromSeconds(int(time.time()) + 5)
    async with Bench([source, look]) as bench:
        await run(bench, given, 2)
    assert seen == [(1, 3, "flow", 7, "n1", 1, "r7:n1")]


async def test_eager_node_has_its_own_timeout() -> None:
    given = chain("hold")
    given.eager_steps[0].timeout.FromMilliseconds(50)
    async with Bench(NODES) as bench:
        _, held = await run(bench, given, 2)
        error = bench.runs[held].error
        assert error is not None
        assert error.code == "TIMEOUT"


@pytest.mark.parametrize("days", [3, 36_600, 10**11], ids=["three days", "the longest there is", "none that is real"])
async def test_eager_timeout_may_be_days(days: int) -> None:
    step = work_pb2.EagerStep(after_node_id="n0", handle="output", node_id="n1")
    step.timeout.seconds = days * 86_400
    given = next_assignment(work_pb2.NodeTaskAssignment(node_id="n0"), [step], [("output", "1")], lambda: 1e9)
    assert given is not None
    assert given.deadline.seconds == 10**9 + min(days, 36_600) * 86_400


async def test_eager_node_has_the_run_of_the_node_before() -> None:
    before = chain("add")
    before.user_id, before.component_id, before.run, before.traceparent = "ann", "c0", 3, "00-1-2-01"
    before.planned_time.seconds = 10**9
    given = next_assignment(before, before.eager_steps, [("output", "1")], time.time)
    assert given is not None
    for field in ("flow_id", "cycle", "run", "run_id", "component_id", "user_id", "traceparent", "planned_time"):
        assert getattr(given, field) == getattr(before, field), field
    before.ClearField("planned_time")
    given = next_assignment(before, before.eager_steps, [("output", "1")], time.time)
    assert given is not None
    assert not given.HasField("planned_time")


@pytest.mark.parametrize("types", [("late_add",), ("unknown",)])
async def test_node_type_not_eager_on_this_worker_does_not_follow(types: tuple[str, ...]) -> None:
    async with Bench(NODES) as bench:
        assert len(await run(bench, chain(*types), 1)) == 1


async def test_only_step_of_emitted_handle_follows() -> None:
    given = chain("choose")
    for handle, node_id in (("buy", "bought"), ("sell", "sold")):
        given.eager_steps.add(
            after_node_id="n1", handle=handle, node_id=node_id, node_type="add", config_json="{}", input_handle="n"
        )
    async with Bench(NODES) as bench:
        assert [token.split(":")[3].split("~")[0] for token in await run(bench, given, 3)] == ["n0", "n1", "sold"]


async def test_no_eager_node_follows_failure() -> None:
    async with Bench(NODES) as bench:
        _, failed = await run(bench, chain("fail", "add"), 2)
        assert bench.runs[failed].error is not None


def test_no_eager_node_follows_suspension() -> None:
    given = chain("add")
    assert next_assignment(given, given.eager_steps, Suspension("answer", 0, -1, "", ""), time.time) is None


async def test_no_eager_node_follows_while_disconnected() -> None:
    async with Bench(NODES) as bench:
        bench.executor.start(chain("add"))
        await until(lambda: not bench.executor.held, "nothing is held")
        assert len(bench.ended) == 1


async def test_threaded_nodes_can_be_eager() -> None:
    async with Bench(NODES) as bench:
        ended = await run(bench, chain("add_in_thread", "add_in_thread", "add"), 4)
        assert [bench.runs[token].output for token in ended] == [1, 2, 3, 4]


async def test_chain_yields_to_event_loop_after_long_turn() -> None:
    async with Bench(NODES) as bench:
        bench.executor.eager_enabled = True
        bench.executor.start(chain("block", "add"))
        await asyncio.sleep(0)
        assert len(bench.ended) == 2
        assert len(bench.executor.held) == 1
        await until(lambda: len(bench.ended) == 3, "it goes on")


async def test_eager_node_stopped_before_its_turn_never_begins() -> None:
    async with Bench(NODES) as bench:
        bench.executor.eager_enabled = True
        bench.executor.start(chain("block", "add"))
        await asyncio.sleep(0)
        (token,) = bench.executor.held
        bench.stop(token)
        assert (await bench.end(token)).terminated
        assert not bench.executor.held


async def test_stop_of_running_eager_node_ends_chain() -> None:
    async with Bench(NODES) as bench:
        bench.executor.eager_enabled = True
        bench.executor.start(chain("hold", "add"))
        await until(lambda: len(bench.ended) == 1, "the first has ended")
        (token,) = bench.executor.held
        bench.stop(token)
        assert (await bench.end(token)).terminated
        assert len(bench.ended) == 2


async def test_eager_node_that_loses_its_lease_reports_nothing() -> None:
    async with Bench(NODES) as bench:
        bench.executor.eager_enabled = True
        bench.executor.start(chain("hold", "add"))
        await until(lambda: len(bench.ended) == 1, "the first has ended")
        bench.executor.lose(next(iter(bench.executor.held)), "it does not count")
        await until(lambda: not bench.executor.held, "nothing is held")
        assert len(bench.ended) == 1


async def test_context_variables_do_not_leak_along_chain() -> None:
    seen, variable = [], ContextVar("variable", default="nothing")

    @node("say", eager=True)
    async def say(n: int) -> int:
        seen.append(variable.get())
        variable.set("something")
        await asyncio.sleep(0)
        seen.append(variable.get())
        return n

    async with Bench([source, say]) as bench:
        await run(bench, chain("say", "say"), 3)
    assert seen == ["nothing", "something"] * 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_any_exception_of_eager_node_is_its_failure(error: BaseException) -> None:
    @node("raise", eager=True)
    async def raising(n: int) -> int:
        raise error

    async with Bench([source, raising]) as bench:
        _, failed = await run(bench, chain("raise", "raise"), 2)
        assert bench.runs[failed].error is not None


async def test_no_eager_node_follows_cancelled_task() -> None:
    @node("stubborn", eager=True)
    async def stubborn(n: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return n

    async with Bench([source, stubborn]) as bench:
        assert len(await run(bench, chain("stubborn", "stubborn"), 2)) == 2
