"""The fan-out example's nodes, and its demonstration."""

import pytest

from examples.fan_out import demo, nodes
from tradewind.flow import read_flow
from tradewind.testing import run_node


async def test_drawdown_is_measured_from_highest_price_of_a_year(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = [50.0, *[100.0] * 10, 80.0, 75.0]
    monkeypatch.setattr(nodes, "months", lambda: [(f"m{at:02}", {"X": price}) for at, price in enumerate(prices)])
    assert (await run_node(nodes.drawdown, share="X", month="m12")).output == 0.25
    assert (await run_node(nodes.drawdown, share="X", month="m11")).output == 0.2
    run = await run_node(nodes.drawdown, share="X", month="m10")
    assert run.error is not None
    assert run.error.message == "X has prices of 11 months up to m10, not of 12"


async def test_deepest_names_items_left_out() -> None:
    errors = [{"item": 1, "message": "too young"}]
    run = await run_node(nodes.deepest, shares=["A", "B", "C"], drawdowns=[0.1, None, 0.3], errors=errors)
    assert run.output == {"deepest": "C", "drawdowns": {"A": 0.1, "C": 0.3}, "left_out": {"B": "too young"}}


def test_flow_uses_exactly_the_node_types_of_module() -> None:
    offered = {nodes.shares.type, nodes.drawdown.type, nodes.deepest.type}
    assert {node.type for node in read_flow(demo.FLOW).nodes} == offered


async def test_demo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert await demo.main(["2004-12"]) == 0
    shown = capsys.readouterr().out
    assert "drawdown (drawdown)  for each of share, 2 at once" in shown
    assert "item 2: failed, ValueError: GOOG has prices of 5 months up to 2004-12, not of 12" in shown
    assert "fell most" in shown
    # Four months after the youngest share's first price, too few shares can be judged.
    assert await demo.main(["2000-04"]) == 1
    assert "ITEMS_FAILED: at least 3 of 4 items must complete" in capsys.readouterr().out
