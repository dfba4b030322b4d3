"""The node types of the waiting example: a price, an order that waits for the exchange, and the case of a rejection."""

from datetime import timedelta
from typing import Any

from examples.momentum.nodes import months
from tradewind.worker import Context, Wait, node


@node("quote", outputs=["quote"])
async def quote(share: str, month: str) -> dict[str, Any]:
    """Emit the price of a share in a month such as "2004-12"."""
    return {"share": share, "price": dict(months())[month][share]}


@node("buy", outputs=["trade"])
async def buy(ctx: Context, quote: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any] | Wait:
    """Order as many shares as were approved, and wait for the exchange for at most a day, occupying no worker."""
    if ctx.resumed is None:
        ctx.log("order %s for %s", ctx.idempotency_key, quote["share"])
        return Wait("filled", until=timedelta(days=1))
    if ctx.resumed.timed_out:
        raise TimeoutError("the exchange said nothing for a day")
    filled = ctx.resumed.payload
    return {**quote, "count": answer["values"]["count"], "paid": filled["price"], "approved_by": answer["by"]}


@node("decline", outputs=["reason"])
async def decline(answer: dict[str, Any]) -> str:
    """Say who rejected the order."""
    return f"declined by {answer['by'] or 'nobody in time'}"
