"""The momentum example's nodes, one by one, and its figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples.momentum import nodes
from tradewind.testing import run_node


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setenv("MOMENTUM_LEDGER", str(path))
    return path


def test_price_table_is_complete() -> None:
    months = nodes.months()
    assert sum(len(prices) for _, prices in months) == 560
    assert (months[0][0], months[-1][0], len(months)) == ("2000-01", "2010-03", 123)
    assert min(month for month, prices in months if "GOOG" in prices) == "2004-08"


async def test_moving_average_covers_this_month_and_last() -> None:
    prices = {"month": "x", "series": {"IBM": [1.0, 2.0, 3.0], "NEW": [1.0]}}
    run = await run_node(nodes.moving_average, prices=prices, config={"window": 2})
    assert run.output == {"IBM": {"before": 1.5, "now": 2.5, "price": 3.0}}


async def test_crossover_branches_by_handle() -> None:
    fast = {"UP": _average(1, 3), "DOWN": _average(3, 1), "SAME": _average(3, 4)}
    slow = {share: _average(2, 2) for share in fast}
    run = await run_node(nodes.crossover, fast=fast, slow=slow)
    assert {handle: list(shares) for handle, shares in run.outputs.items()} == {
        "buy": ["UP"],
        "sell": ["DOWN"],
        "hold": ["SAME"],
    }
    (line,) = run.logs
    assert line.message == "crossed up: UP, down: DOWN"


async def test_crossover_emits_only_handles_with_shares() -> None:
    run = await run_node(nodes.crossover, fast={"A": _average(3, 4)}, slow={"A": _average(2, 2)})
    assert list(run.outputs) == ["hold"]


async def test_risk_check_sells_but_does_not_buy_expensive_shares() -> None:
    run = await run_node(nodes.risk_check, buy={"CHEAP": 10.0, "DEAR": 600.0}, sell={"OLD": 700.0})
    assert [(order["side"], order["share"]) for order in run.output] == [("sell", "OLD"), ("buy", "CHEAP")]


async def test_broker_trades_once_for_each_node_task(ledger: Path) -> None:
    orders = [{"side": "buy", "share": "IBM", "price": 100.0}]
    first = await run_node(nodes.paper_broker, orders=orders)
    again = await run_node(nodes.paper_broker, orders=orders)
    assert first.output == again.output == [{"side": "buy", "share": "IBM", "price": 100.0, "count": 20}]
    assert len(ledger.read_text().splitlines()) == 1
    prices = {"month": "2001-04", "series": {"IBM": [110.0]}}
    report = await run_node(nodes.report, prices=prices, fills=first.output)
    assert (report.output["cash"], report.output["value"]) == (8000.0, 10200.0)


def test_flow_uses_exactly_the_node_types_of_module() -> None:
    flow = json.loads(Path(nodes.__file__).with_name("flow.json").read_text())
    offered = {"price_feed", "moving_average", "crossover", "risk_check", "paper_broker", "report", "breadth"}
    assert {node["type"] for node in flow["nodes"]} == offered


def _average(before: float, now: float) -> dict[str, Any]:
    return {"before": before, "now": now, "price": 10.0}
