"""The node types of the momentum example: from prices to paper trades."""

import csv
import json
import os
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from tradewind.worker import Context, Emit, node

PRICES = Path(__file__).with_name("prices.csv")
CASH = 10_000.0

Averages = dict[str, dict[str, float]]


@cache
def months() -> list[tuple[str, dict[str, float]]]:
    """Return (month, price by share) in chronological order, for example ("2004-08", {"IBM": 77.72, ...})."""
    table: dict[str, dict[str, float]] = {}
    with PRICES.open(newline="") as file:
        for row in csv.DictReader(file):
            month = datetime.strptime(row["date"], "%b %d %Y").strftime("%Y-%m")
            table.setdefault(month, {})[row["symbol"]] = float(row["price"])
    return sorted(table.items())


@node("price_feed", outputs=["prices"])
async def price_feed(ctx: Context, start: int = 14, history: int = 13, month: str = "") -> dict[str, Any]:
    """Emit the prices up to this cycle's month: one month later with every cycle, or the month that was asked for."""
    known = months()
    names = [name for name, _ in known]
    if month and month not in names:
        raise ValueError(f"no prices for {month}: they go from {names[0]} to {names[-1]}")
    at = names.index(month) if month else (start + ctx.cycle) % len(known)
    window = known[max(0, at + 1 - history) : at + 1]
    series = {share: [prices[share] for _, prices in window if share in prices] for share in known[at][1]}
    return {"month": names[at], "series": series}


@node("moving_average", outputs=["averages"])
def moving_average(prices: dict[str, Any], window: int) -> Averages:
    """Average each share's prices over `window` months, as of a month ago and as of now."""
    return {
        share: {
            "before": fmean(values[-window - 1 : -1]),
            "now": fmean(values[-window:]),
            "price": values[-1],
        }
        for share, values in prices["series"].items()
        if len(values) > window
    }


@node("crossover", outputs=["buy", "sell", "hold"])
async def crossover(ctx: Context, fast: Averages, slow: Averages) -> Emit:
    """Branch into shares whose fast average crossed above the slow one, shares that crossed below, and the rest."""
    decided: dict[str, dict[str, float]] = {"buy": {}, "sell": {}, "hold": {}}
    for share in sorted(fast.keys() & slow.keys()):
        above_before, above_now = (fast[share][when] > slow[share][when] for when in ("before", "now"))
        handle = "hold" if above_before == above_now else "buy" if above_now else "sell"
        decided[handle][share] = fast[share]["price"]
    ctx.log("crossed up: %s, down: %s", ", ".join(decided["buy"]) or "none", ", ".join(decided["sell"]) or "none")
    return Emit(**{handle: shares for handle, shares in decided.items() if shares})


@node("risk_check", outputs=["orders"])
async def risk_check(
    buy: dict[str, float] | None = None, sell: dict[str, float] | None = None, max_price: float = 500.0
) -> list[dict[str, Any]]:
    """Turn decisions into orders, sales first; shares dearer than `max_price` are not bought."""
    sales = [("sell", share, price) for share, price in (sell or {}).items()]
    buys = [("buy", share, price) for share, price in (buy or {}).items() if price <= max_price]
    return [{"side": side, "share": share, "price": price} for side, share, price in sales + buys]


@node("paper_broker", outputs=["fills"])
def paper_broker(ctx: Context, orders: list[dict[str, Any]], budget: float = 2_000.0) -> list[dict[str, Any]]:
    """Fill orders on paper and enter them into the ledger, once per node task, however often it is attempted."""
    ledger = Ledger()
    entered = ledger.fills_of(ctx.idempotency_key)
    if entered is not None:
        return entered
    fills = []
    cash, positions = ledger.book()
    for order in orders:
        share, price = order["share"], order["price"]
        count = int(min(budget, cash) // price) if order["side"] == "buy" else positions.get(share, 0)
        if count:
            cash += count * price * (1 if order["side"] == "sell" else -1)
            fills.append({**order, "count": count})
    ledger.enter(ctx.idempotency_key, fills)
    ctx.log("filled %s", ", ".join(f"{f['side']} {f['count']} {f['share']}" for f in fills) or "nothing")
    return fills


@node("report", outputs=["report"])
async def report(
    prices: dict[str, Any], fills: list[dict[str, Any]] | None = None, hold: dict[str, float] | None = None
) -> dict[str, Any]:
    """Report the cycle's decision and what the book is worth."""
    cash, positions = Ledger().book()
    last = {share: values[-1] for share, values in prices["series"].items()}
    return {
        "month": prices["month"],
        "traded": [f"{fill['side']} {fill['count']} {fill['share']} at {fill['price']:.2f}" for fill in fills or ()],
        "held": sorted(hold or {}),
        "cash": round(cash, 2),
        "value": round(cash + sum(count * last.get(share, 0.0) for share, count in positions.items()), 2),
    }


@node("breadth", outputs=["breadth"])
def breadth(prices: dict[str, Any]) -> dict[str, int]:
    """Count the shares that rose in the month."""
    moves = [values[-1] > values[-2] for values in prices["series"].values() if len(values) > 1]
    return {"rose": sum(moves), "of": len(moves)}


class Ledger:
    """Paper trades, one JSON line for each node task that traded; MOMENTUM_LEDGER names the file."""

    def __init__(self) -> None:
        self.path = Path(os.environ.get("MOMENTUM_LEDGER", ".tradewind/momentum-ledger.jsonl"))
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self._entries: dict[str, list[dict[str, Any]]] = {e["key"]: e["fills"] for e in map(json.loads, lines)}

    def fills_of(self, key: str) -> list[dict[str, Any]] | None:
        """Return the trades of a node task; None if it has entered none yet."""
        return self._entries.get(key)

    def enter(self, key: str, fills: list[dict[str, Any]]) -> None:
        """Add the trades of a node task."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, "fills": fills}) + "\n")

    def book(self) -> tuple[float, dict[str, int]]:
        """Return cash and positions after all trades."""
        cash, positions = CASH, dict[str, int]()
        for fill in (fill for fills in self._entries.values() for fill in fills):
            sign = 1 if fill["side"] == "buy" else -1
            cash -= sign * fill["count"] * fill["price"]
            positions[fill["share"]] = positions.get(fill["share"], 0) + sign * fill["count"]
        return cash, {share: count for share, count in positions.items() if count}
