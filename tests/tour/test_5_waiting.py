"""Chapter 5: a node that waits for a person, or for another program, keeps no worker busy meanwhile."""

from datetime import timedelta
from typing import Any

from tests.waiting import until
from tradewind.client import Client, NodeTaskStatus
from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import Context, Wait, node


@node("pay", outputs=["receipt"])
async def pay(ctx: Context, euros: float) -> str | Wait:
    """It runs twice: before the wait, and after it."""
    if ctx.resumed is None:
        return Wait("paid", until=timedelta(hours=2))
    if ctx.resumed.timed_out:
        raise TimeoutError("nobody has paid")
    return f"{euros:g} paid by {ctx.resumed.by}"


@node("ship")
async def ship(receipt: str, approval: dict[str, Any]) -> str:
    return f"{receipt}, {approval['values']}"


def shop() -> Flow:
    flow = Flow("shop", "1h")
    paid = flow.node("pay", pay, {"euros": 5})
    form = {"title": "Ship it?", "fields": [{"name": "parcels", "type": "integer", "required": True}]}
    # A built-in type: it needs no worker.
    asked = flow.node("ask", "approval", {"form": form})
    shipped = flow.node("ship", ship)
    paid["receipt"] >> shipped["receipt"]
    asked["approved"] >> shipped["approval"]
    return flow


async def _wait_until_suspended(client: Client, task_id: str) -> None:
    async def is_suspended() -> bool:
        return (await client.get_node_task(task_id)).status is NodeTaskStatus.SUSPENDED

    await until(is_suspended, f"{task_id} waits")


async def test_signals_and_answers_resume_waiting_nodes() -> None:
    async with running_stack([pay, ship]) as client:
        await client.register_flow("shop", shop())
        cycle = await client.run_flow("shop")
        await _wait_until_suspended(client, "shop:0:0:pay")
        assert (await client.cycle_statistics("shop", 0)).waiting

        await client.signal_node("shop:0:0:pay", "paid", {"euros": 5}, by="ada")
        await client.answer_node("shop:0:0:ask", values={"parcels": 2}, by="bob")
        assert await cycle.result(30) == {"ship": {"output": "5 paid by ada, {'parcels': 2}"}}
