"""The test helper with which users run their nodes."""

import asyncio
import math
import re
from dataclasses import dataclass
from typing import Any

import pytest

from tradewind.testing import LogLine, NodeFailure, run_node
from tradewind.worker import Context, Emit, NodeStopExecution, node


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


async def test_a_node_is_tested_as_a_function() -> None:
    run = await run_node(signal, quote=Quote("IBM", 99.5), config={"limit": 100})

    assert run.outputs == {"buy": {"symbol": "IBM", "price": 99.5}}
    assert run.output == {"symbol": "IBM", "price": 99.5}
    assert run.logs == [LogLine("INFO", "looking at symbol='IBM'")]
    assert run.progress == [(50, "deciding")]
    assert run.error is None


async def test_errors_are_in_the_result() -> None:
    run = await run_node(signal, quote={"symbol": "IBM", "price": -1})

    assert run.error is not None
    assert (run.error.code, run.error.type, run.error.message) == ("NODE_ERROR", "ValueError", "a price below zero")
    with pytest.raises(AssertionError, match="expected one output, got NodeFailure"):
        _ = run.output


async def test_a_stop_reaches_the_node_where_it_waits() -> None:
    told = []

    @node("waits")
    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except NodeStopExecution as stop:
            told.append(str(stop))
            raise

    run = await run_node(waits, stop="market closed")

    assert run.terminated
    assert run.error == NodeFailure("", "market closed (by test)")
    assert told == ["market closed (by test)"]


async def test_a_stop_ends_a_thread_that_looks() -> None:
    @node("looks")
    def looks(ctx: Context) -> None:
        ctx.log("begun")
        while True:
            ctx.check_stop()

    run = await run_node(looks, stop="enough")

    assert run.terminated
    assert [line.message for line in run.logs] == ["begun"]


async def test_what_is_no_node_is_not_run() -> None:
    with pytest.raises(TypeError, match=r"run_node needs a node, but <built-in function len> is not one: decorate the"):
        await run_node(len, x=1)  # type: ignore[arg-type]


async def test_an_unknown_fact_is_a_slip_of_the_test() -> None:
    with pytest.raises(TypeError, match="the context has no fact cylce"):
        await run_node(signal, facts={"cylce": 3})


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"quote": {"symbol": "IBM", "price": math.nan}}, "quote.price"),
        ({"config": {"limit": math.inf}}, "config.limit"),
        ({"flow_memory": {"seen": [math.nan]}}, "flow_memory.seen"),
    ],
)
async def test_what_no_worker_can_get_is_a_slip_of_the_test(given: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=re.escape(where)):
        await run_node(signal, **given)


@pytest.mark.parametrize(("name", "result"), [("", 0), ("a" * 129, 0), ("a\nb", 0), ("cursor", "x" * 65_536)])
async def test_what_the_scheduler_would_not_keep_is_not_kept(name: str, result: Any) -> None:
    @node("keeps")
    async def keeps(ctx: Context) -> None:
        await ctx.flow_memory.set(name, 1)
        await ctx.set_result(result)

    run = await run_node(keeps)

    assert run.error is not None
    assert (run.error.type, run.result) == ("MemoryFault", None)
