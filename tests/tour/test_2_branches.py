"""Chapter 2: a node chooses a branch by the handle it emits, and other nodes join what comes in."""

from tradewind.client import NodeTaskStatus
from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import Emit, Gather, node


@node("vote", outputs=["buy", "hold"])
async def vote(opinions: Gather[float]) -> Emit:
    """`Gather` takes any number of edges; `Emit` names the handles that are emitted."""
    mean = sum(opinions) / len(opinions)
    return Emit(buy=mean) if mean > 0 else Emit(hold=mean)


@node("opinion")
async def opinion(value: float) -> float:
    return value


@node("order")
async def order(strength: float) -> str:
    return f"buy, strength {strength:g}"


@node("report")
async def report(order: str = "nothing to do") -> str:
    return order


def voting(*values: float) -> Flow:
    flow = Flow("voting", "1h")
    decide = flow.node("decide", vote)
    for place, value in enumerate(values):
        flow.node(f"opinion-{place}", opinion, {"value": value})["output"] >> decide["opinions"]
    buy = flow.node("buy", order)
    decide["buy"] >> buy["strength"]
    # It runs whatever becomes of the order.
    buy["output"] >> flow.node("report", report, run_if="all_done")["order"]
    return flow


async def test_the_branch_of_an_emitted_handle_runs() -> None:
    async with running_stack([vote, opinion, order, report]) as client:
        await client.register_flow("voting", voting(1.0, 2.0))
        cycle = await client.run_flow("voting")
        assert await cycle.result(30) == {"report": {"output": "buy, strength 1.5"}}


async def test_the_other_branches_are_skipped() -> None:
    async with running_stack([vote, opinion, order, report]) as client:
        await client.register_flow("voting", voting(-1.0, 0.5))
        cycle = await client.run_flow("voting")
        assert await cycle.result(30) == {"report": {"output": "nothing to do"}}

        buy = (await cycle.describe()).node("buy")
        assert buy is not None
        assert buy.status is NodeTaskStatus.SKIPPED
