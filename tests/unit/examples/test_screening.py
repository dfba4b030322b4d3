"""The screening example's node, its items and its demonstration."""

import json
import re
import subprocess
import sys

import pytest

from examples.screening import demo, nodes
from examples.screening.items import items, parse_arguments
from tests.house.project import ROOT
from tradewind.testing import run_node


async def test_momentum_is_measured_over_window() -> None:
    run = await run_node(nodes.screen_share, config={"share": "AAPL", "until": "2004-12", "max_volatility": 0.2})
    window = nodes.window_of("AAPL", "2004-12", 12)
    assert len(window) == 13
    assert run.output["momentum"] == pytest.approx(window[-1] / window[0] - 1, abs=1e-4)
    assert (run.output["share"], run.output["passed"]) == ("AAPL", True)
    (line,) = run.logs
    assert line.message == "AAPL until 2004-12 passes"


async def test_share_passes_only_if_it_meets_all_criteria(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = [100.0, 120.0, 90.0, 135.0]
    monkeypatch.setattr(nodes, "price_table", lambda: [(f"m{at}", {"X": price}) for at, price in enumerate(prices)])

    async def passed(**criteria: float) -> bool:
        wide = {"min_momentum": 0.0, "max_volatility": 1.0, "max_drawdown": 1.0}
        given = {"share": "X", "until": "m3", "months": 3, **wide, **criteria}
        run = await run_node(nodes.screen_share, config=given)
        assert (run.output["momentum"], run.output["drawdown"]) == (0.35, 0.25)
        return bool(run.output["passed"])

    assert await passed()
    assert await passed(min_momentum=0.35, max_drawdown=0.25)
    assert not await passed(min_momentum=0.36)
    assert not await passed(max_drawdown=0.24)
    assert not await passed(max_volatility=0.3)


async def test_window_without_enough_prices_fails() -> None:
    run = await run_node(nodes.screen_share, config={"share": "GOOG", "until": "2004-12"})
    assert run.error is not None
    assert run.error.message == "GOOG has 5 prices up to 2004-12; 12 months need 13, 3 at least"
    run = await run_node(nodes.screen_share, config={"share": "IBM", "until": "1999-12"})
    assert run.error is not None
    assert run.error.message.startswith("no prices for 1999-12")


def test_each_share_and_month_with_full_window_is_an_item() -> None:
    found = items()
    assert len(found) == 500
    assert found[0]["until"] == "2001-01"
    assert min(item["until"] for item in found if item["share"] == "GOOG") == "2005-08"
    assert parse_arguments(["--min-momentum", "0.3", "--months", "6"])["min_momentum"] == 0.3


@pytest.mark.parametrize("months", ["-3", "1", "500"])
def test_impossible_window_lengths_are_refused(months: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--months", months])
    assert "--months must be from 2 to 122" in capsys.readouterr().err


def test_items_are_printed_as_json_lines() -> None:
    command = [sys.executable, "-m", "examples.screening.items", "--months", "24", "--max-drawdown", "0.5"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    first = {"share": "AAPL", "until": "2002-01", "months": 24, "min_momentum": 0.1, "max_volatility": 0.12}
    assert json.loads(lines[0]) == first | {"max_drawdown": 0.5}


async def test_demo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert await demo.main(["--min-momentum", "0.2"]) == 0
    shown = capsys.readouterr().out
    assert "500 items, one for each share and month." in shown
    assert "500 of 500 items completed in " in shown
    (cached,) = re.findall(r"500 of 500 items completed, (\d+) of them from the cache in ", shown)
    assert 0 < int(cached) <= 500
    assert "IBM" in shown
