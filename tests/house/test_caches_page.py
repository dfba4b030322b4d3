"""docs/caches.md is right: its code runs, its numbers are the defaults."""

import asyncio
import re
import textwrap
from typing import Any

import pytest

from examples.screening.nodes import screen_share
from tests.house.project import ROOT
from tradewind.node_task_manager.domain.caching import BUILT_IN, JITTER, MAX_BYTES, CacheSettings
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.metrics import CACHE_COUNTS
from tradewind.node_task_manager.stores.keys import CACHE_ACL
from tradewind.testing import running_stack

PAGE = (ROOT / "docs" / "caches.md").read_text(encoding="utf-8")


async def test_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    shown, declared = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(f"async def shown(client):\n{textwrap.indent(shown, '    ')}", scope)
    async with running_stack([screen_share]) as client:
        await asyncio.wait_for(scope["shown"](client), 30)
        flow = await client.get_flow("daily")
    assert capsys.readouterr().out.splitlines() == [
        "6 completed, 0 cached",
        "6 completed, 6 cached",
        "ran",
    ]
    assert flow.flow.config["nodes"][0]["cache"] == {"name": "analysis", "scope": "flow"}
    exec(declared, scope)
    offer = scope["momentum"].offer()
    assert (offer.cache.name, offer.version[:2]) == ("analysis", "2+")


def test_numbers_of_the_page_are_the_defaults() -> None:
    assert SystemConfig().enable_cache
    assert f"`cache_ttl` ({SystemConfig().cache_ttl / 3600:g} h)" in PAGE
    assert [name for name, each in BUILT_IN.items() if f"`{name}` ({each.ttl / 3600:g} h)" not in PAGE] == []
    assert f"for {100 * (1 - JITTER):.0f} to 100 % of its time" in PAGE
    assert f"more than {MAX_BYTES // 1024} KiB together" in PAGE
    assert f"keeps {CacheSettings().max_entries:,} results".replace(",", " ") in PAGE
    assert [pattern for pattern in CACHE_ACL.patterns if f"`{pattern}`" not in PAGE] == []
    assert [what for what in CACHE_COUNTS if f"| {what} |" not in PAGE] == []
