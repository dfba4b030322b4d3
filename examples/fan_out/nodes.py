"""The node types of the fan-out example: list the shares, judge one share, and sum up the results."""

from typing import Any

from examples.momentum.nodes import months
from tradewind.worker import Context, Emit, node

YEAR = 12


@node("shares", outputs=["shares", "month"])
async def shares(month: str) -> Emit:
    """Emit the shares that have a price in a month such as "2004-12", and the month."""
    prices = dict(months())
    if month not in prices:
        raise ValueError(f"no prices for {month}: they go from {min(prices)} to {max(prices)}")
    return Emit(shares=sorted(prices[month]), month=month)


@node("drawdown", outputs=["drawdown"])
async def drawdown(ctx: Context, share: str, month: str) -> float:
    """Emit by what fraction a share is below its highest price of the twelve months up to this one."""
    known = [prices[share] for name, prices in months() if name <= month and share in prices]
    if len(known) < YEAR:
        raise ValueError(f"{share} has prices of {len(known)} months up to {month}, not of {YEAR}")
    ctx.log("item %s is %s", ctx.item, share)
    return round(1 - known[-1] / max(known[-YEAR:]), 4)


@node("deepest", outputs=["report"])
async def deepest(
    shares: list[str], drawdowns: list[float | None], errors: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Name the share that fell most, list all that were judged, and say why others were not."""
    judged = {share: fall for share, fall in zip(shares, drawdowns, strict=True) if fall is not None}
    return {
        "deepest": max(judged, key=lambda share: judged[share]),
        "drawdowns": judged,
        "left_out": {shares[error["item"]]: error["message"] for error in errors or ()},
    }
