"""Chapter 1: a node is a function, a flow joins nodes, a cycle is one execution of a flow."""

from statistics import fmean

from tradewind.client import CycleStatus
from tradewind.flow import Flow
from tradewind.testing import run_node, running_stack
from tradewind.worker import Context, node


@node("prices", outputs=["prices"])
async def prices(ctx: Context, symbol: str, days: int = 4) -> list[float]:
    """`symbol` comes from the node's config; `ctx` holds the facts of the cycle."""
    ctx.log("%s, %s days", symbol, days)
    return [100.0 + day for day in range(days)]


@node("average", outputs=["average"])
async def average(prices: list[float], window: int = 2) -> float:
    """`prices` arrives by an edge, `window` comes from the config or its default."""
    return fmean(prices[-window:])


def momentum() -> Flow:
    """Two nodes and the edge between them: output handle to input handle."""
    flow = Flow("momentum", "1h")
    feed = flow.node("feed", prices, {"symbol": "IBM"})
    fast = flow.node("fast", average)
    feed["prices"] >> fast["prices"]
    return flow


async def test_a_node_runs_in_a_test_without_any_server() -> None:
    run = await run_node(average, prices=[1.0, 2.0, 4.0], config={"window": 2})
    assert run.output == 3.0


async def test_a_flow_is_registered_and_run() -> None:
    async with running_stack([prices, average]) as client:
        registered = await client.register_flow("momentum", momentum())
        assert registered.flow.revision == 1

        cycle = await client.run_flow("momentum")
        # What a flow gives is what its last nodes emit, by node and handle.
        assert await cycle.result(30) == {"fast": {"average": 102.5}}


async def test_ended_cycle_stays_on_record() -> None:
    async with running_stack([prices, average]) as client:
        await client.register_flow("momentum", momentum())
        # Inputs of a run reach the nodes that no edge leads to, before their config.
        cycle = await client.run_flow("momentum", inputs={"days": 10}, wait="30s")

        described = await cycle.describe(include_outputs=True)
        assert described.cycle.status is CycleStatus.COMPLETED
        feed = described.node("feed")
        assert feed is not None
        assert len(feed.outputs["prices"]) == 10
        assert "IBM, 10 days" in [line.message for line in described.logs]
