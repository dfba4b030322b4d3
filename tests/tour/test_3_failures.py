"""Chapter 3: nodes fail; they are retried, the cycle says why it failed, and is run again from where it failed."""

from typing import Any

import pytest

from tradewind.client import CycleFailed, CycleStatus
from tradewind.flow import Flow, Retry
from tradewind.testing import running_stack
from tradewind.worker import Context, node

loads: list[int] = []
closed: set[str] = set()


@node("load")
async def load(ctx: Context) -> list[str]:
    loads.append(ctx.attempt)
    if ctx.attempt < 3:
        raise ConnectionError("the exchange does not answer")
    return ["AAPL", "IBM"]


@node("trade")
async def trade(shares: list[str]) -> str:
    if "AAPL" in closed:
        raise ValueError("AAPL is closed")
    return f"traded {len(shares)}"


@node("page")
async def page(outcome: dict[str, Any]) -> str:
    return f"{outcome['status']}: {outcome['reason']}"


def trading() -> Flow:
    flow = Flow("trading", "1h")
    flow.node("load", load, retry=Retry(5, "10ms"))["output"] >> flow.node("trade", trade)["shares"]
    flow.on_failure(flow.node("page", page))
    return flow


@pytest.fixture(autouse=True)
def _reset() -> None:
    loads.clear()
    closed.clear()


async def test_failed_node_is_retried() -> None:
    async with running_stack([load, trade, page]) as client:
        await client.register_flow("trading", trading())
        assert (await (await client.run_flow("trading")).result(30))["trade"] == {"output": "traded 2"}
        assert loads == [1, 2, 3]


async def test_failed_cycle_gives_reason_and_reruns_from_the_failure() -> None:
    closed.add("AAPL")
    async with running_stack([load, trade, page]) as client:
        await client.register_flow("trading", trading())
        with pytest.raises(CycleFailed, match="AAPL is closed") as failed:
            await (await client.run_flow("trading")).result(30)
        # The node of `on_failure` has run, and was told the outcome.
        assert failed.value.outputs["page"]["output"].startswith("failed: 1 failed")

        closed.clear()
        again = await client.rerun_cycle("trading", reason="AAPL is open again")
        ended = await again.wait(30)
        assert (ended.cycle, ended.run, ended.status) == (0, 1, CycleStatus.COMPLETED)
        # What was loaded is kept: a rerun repeats only what has no good result.
        assert loads == [1, 2, 3]
