"""The waiting example's nodes, and its demonstration."""

from datetime import UTC, datetime, timedelta

import pytest

from examples.waiting import demo, nodes
from tradewind.testing import run_node
from tradewind.worker import Resumed

QUOTE = {"share": "IBM", "price": 98.0}
ANSWER = {"approved": True, "values": {"count": 100}, "by": "ada"}


async def test_order_waits_at_most_a_day_for_exchange() -> None:
    first = await run_node(nodes.buy, quote=QUOTE, answer=ANSWER)
    assert first.wait is not None
    assert (first.wait.signal, first.wait.delay) == ("filled", timedelta(days=1))
    now = datetime.now(UTC)
    filled = await run_node(nodes.buy, quote=QUOTE, answer=ANSWER, resumed=Resumed("filled", {"price": 98.5}, "x", now))
    assert filled.output == {**QUOTE, "count": 100, "paid": 98.5, "approved_by": "ada"}
    late = await run_node(nodes.buy, quote=QUOTE, answer=ANSWER, resumed=Resumed("", None, "", now))
    assert late.error is not None
    assert late.error.message == "the exchange said nothing for a day"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["asked: Buy this share?", 'buy waits for signal "filled"', "buy: {'trade': {'share': 'IBM',"]),
        (["reject"], ["asked: Buy this share?", "decline: {'reason': 'declined by ada'}"]),
    ],
)
async def test_demo_runs(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: list[str]) -> None:
    assert await demo.main(arguments) == 0
    shown = capsys.readouterr().out
    assert [line for line in expected if line not in shown] == []


@pytest.mark.parametrize(("argument", "code"), [("rejct", 2), ("--help", 0)])
async def test_demo_buys_nothing_for_unknown_answer(argument: str, code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        await demo.main([argument])
    assert ended.value.code == code
