"""Chapter 4: one node for each item of a list, and nodes that run outside any flow."""

from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import node

CLOSES = {"AAPL": [10.0, 5.0, 12.0], "IBM": [100.0, 120.0, 90.0]}


@node("shares", outputs=["shares"])
async def shares() -> list[str]:
    return sorted(CLOSES)


@node("drawdown", outputs=["drawdown"])
async def drawdown(share: str) -> float:
    closes = CLOSES[share]
    return max(1 - close / max(closes[: day + 1]) for day, close in enumerate(closes))


@node("deepest")
async def deepest(drawdowns: list[float]) -> float:
    return max(drawdowns)


async def test_a_mapped_node_runs_once_for_each_item() -> None:
    flow = Flow("drawdowns", "1h")
    each = flow.node("each", drawdown, map="share", max_parallel=4)
    flow.node("shares", shares)["shares"] >> each["share"]
    # What the items emit arrives as one list, in the order of the items.
    each["drawdown"] >> flow.node("deepest", deepest)["drawdowns"]
    async with running_stack([shares, drawdown, deepest]) as client:
        await client.register_flow("drawdowns", flow)
        assert await (await client.run_flow("drawdowns")).result(30) == {"deepest": {"output": 0.5}}


async def test_a_task_runs_one_node_by_itself() -> None:
    async with running_stack([drawdown]) as client:
        task = await client.submit_task(drawdown, {"share": "IBM"})
        assert await task.result(30) == {"drawdown": 0.25}


async def test_a_batch_runs_a_node_type_for_many_sets_of_parameters() -> None:
    async with running_stack([drawdown]) as client:
        batch = await client.submit_batch(drawdown, [{"share": share} for share in ("AAPL", "IBM", "AAPL")])
        assert [each["drawdown"] for each in await batch.result(30)] == [0.5, 0.25, 0.5]
