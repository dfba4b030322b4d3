"""The test helper with which users run their nodes."""

import asyncio
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tradewind.testing import LogLine, NodeFailure, run_node
from tradewind.worker import Context, Emit, Gather, NodeStopExecution, node


@dataclass
class Quote:
    symbol: str
    price: float


@node("signal", outputs=["buy", "hold"])
async def signal(ctx: Context, quote: Quote, limit: float = 100.0) -> Emit:
    """Says whether to buy."""
    ctx.log.info("looking at", symbol=quote.symbol)
    await ctx.progress(50, "deciding")
    if quote.price < 0:
        raise ValueError("a price below zero")
    return Emit(buy=quote) if quote.price < limit else Emit(hold=None)


async def test_run_node_returns_outputs_logs_and_progress() -> None:
    run = await run_node(signal, quote=Quote("IBM", 99.5), config={"limit": 100})

    assert run.outputs == {"buy": {"symbol": "IBM", "price": 99.5}}
    assert run.output == {"symbol": "IBM", "price": 99.5}
    assert run.logs == [LogLine("info", "looking at symbol='IBM'")]
    assert run.progress == [(50, "deciding")]
    assert run.error is None


async def test_error_of_a_node_is_in_the_result() -> None:
    run = await run_node(signal, quote={"symbol": "IBM", "price": -1})

    assert run.error is not None
    assert (run.error.code, run.error.type, run.error.message) == ("NODE_ERROR", "ValueError", "a price below zero")
    with pytest.raises(AssertionError, match="expected one output, got NodeFailure"):
        _ = run.output


async def test_stop_is_raised_where_a_node_waits() -> None:
    stops = []

    @node("waits_forever")
    async def waits_forever() -> None:
        try:
            await asyncio.Event().wait()
        except NodeStopExecution as stop:
            stops.append(str(stop))
            raise

    run = await run_node(waits_forever, stop="market closed")

    assert run.terminated
    assert run.error == NodeFailure("", "market closed (by test)")
    assert stops == ["market closed (by test)"]


async def test_stop_ends_a_thread_that_checks_for_it() -> None:
    @node("checks_stop")
    def checks_stop(ctx: Context) -> None:
        ctx.log("begun")
        while True:
            ctx.check_stop()

    run = await run_node(checks_stop, stop="enough")

    assert run.terminated
    assert [line.message for line in run.logs] == ["begun"]


async def test_undecorated_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"run_node needs a node, but <built-in function len> is not one: decorate the"):
        await run_node(len, x=1)  # type: ignore[arg-type]


async def test_stop_and_resumption_of_another_type_are_refused() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="stop must be a str, not 3"):
        await run_node(signal, stop=wrong)
    with pytest.raises(TypeError, match="resumed must be a Resumed, not 3"):
        await run_node(signal, resumed=wrong)


async def test_unknown_fact_is_refused() -> None:
    with pytest.raises(TypeError, match="the context has no fact cylce"):
        await run_node(signal, facts={"cylce": 3})


@pytest.mark.parametrize(
    "fact",
    [{"cycle": "7"}, {"planned_time": "2027-01-01"}, {"cycle": datetime(2027, 1, 1, tzinfo=UTC)}, {"inputs": [1]}],
)
async def test_fact_of_another_type_is_named(fact: dict[str, Any]) -> None:
    (name,) = fact
    with pytest.raises(TypeError, match=f"the fact {name} cannot be"):
        await run_node(signal, facts=fact)


@pytest.mark.parametrize("values", [3, "abc", {"a": 1}])
async def test_handle_that_gathers_needs_a_list(values: Any) -> None:
    @node("gathers")
    async def gathers(values: Gather[Any]) -> int:
        return len(values)

    with pytest.raises(TypeError, match="values gathers: give it a list with one value for each edge, not"):
        await run_node(gathers, values=values)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"quote": {"symbol": "IBM", "price": math.nan}}, "quote.price"),
        ({"config": {"limit": math.inf}}, "config.limit"),
        ({"flow_memory": {"seen": [math.nan]}}, "flow_memory.seen"),
    ],
)
async def test_values_that_no_worker_can_receive_are_refused(given: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=re.escape(where)):
        await run_node(signal, **given)


@pytest.mark.parametrize(("name", "result"), [("", 0), ("a" * 129, 0), ("a\nb", 0), ("cursor", "x" * 65_536)])
async def test_memory_and_results_that_the_scheduler_would_refuse_are_refused(name: str, result: Any) -> None:
    @node("stores_values")
    async def stores_values(ctx: Context) -> None:
        await ctx.flow_memory.set(name, 1)
        await ctx.set_result(result)

    run = await run_node(stores_values)

    assert run.error is not None
    assert (run.error.type, run.result) == ("MemoryFault", None)
