"""docs/memory.md is right: its nodes run in the worker, in a thread and in a process."""

import asyncio
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.pages import module_of
from tests.house.project import ROOT
from tradewind.flow import Flow
from tradewind.scheduler.domain.memory import MAX_BYTES, REMEMBERED
from tradewind.scheduler.stores.redis.packed import COMPRESSED_FROM
from tradewind.testing import running_stack

PAGE = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
NODES, OUTSIDE, TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PRINTED,) = re.findall(r"\n```\n(\{.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[ModuleType]:
    """The page's nodes and test as one module."""
    with module_of("shown_in_memory", NODES + TESTS, tmp_path) as module:
        yield module


async def test_nodes_of_the_page_remember_across_cycles(shown: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    await shown.test_trades_before_the_cursor_are_skipped()
    flow = Flow("trades", "1h")
    trades, book, report = flow.node("trades", "new_trades"), flow.node("book", "book"), flow.node("report", "report")
    trades["trades"] >> book["trades"]
    book["position"] >> report["position"]
    feed = [{"id": 1, "size": 5}, {"id": 3, "size": 7}]
    async with running_stack([shown.new_trades, shown.book, shown.report]) as client:
        await client.register_flow("trades", flow)
        for trades_now, text in ((feed[:1], "1 trades, 5 held"), (feed, "1 trades, 12 held")):
            run = await client.run_flow("trades", {"feed": trades_now})
            assert await run.result(60) == {"report": {"text": text}}
        assert (await client.get_cycle("trades", 1)).given == {"position": 12, "trades": 1}
        capsys.readouterr()
        scope: dict[str, object] = {}
        exec(f"async def shown(client):\n{textwrap.indent(OUTSIDE, '    ')}", scope)
        outside = scope["shown"]
        assert callable(outside)
        await asyncio.wait_for(outside(client), 30)
        assert capsys.readouterr().out == PRINTED
        assert (await client.get_memory("trades")).variables == {"cursor": 0}


def test_numbers_of_the_page_are_the_limits() -> None:
    text = " ".join(PAGE.split())
    assert f"at most {MAX_BYTES // 1024} KiB together" in text
    assert f"unless {REMEMBERED} other changes came between" in text
    assert f"From {COMPRESSED_FROM // 1024} KiB on, variables are stored compressed" in text
