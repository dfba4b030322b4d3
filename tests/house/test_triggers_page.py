"""docs/triggers.md is right: its code runs and prints what the page says, its calls exist."""

import asyncio
import re
import textwrap

import pytest

from examples.screening.nodes import screen_share
from tests.house.project import ROOT
from tradewind.api.trigger.v1 import trigger_service_pb2
from tradewind.testing import running_stack

PAGE = (ROOT / "docs" / "triggers.md").read_text(encoding="utf-8")


async def test_code_of_the_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    code, chained = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"\n```\n(scheduled .*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {}
    exec(f"async def shown(client):\n{textwrap.indent(code, '    ')}", scope)
    # tests/system/test_chained_flows.py runs this code.
    exec(f"async def chained(client):\n{textwrap.indent(chained, '    ')}", scope)
    async with running_stack([screen_share]) as client:
        capsys.readouterr()
        shown = scope["shown"]
        assert callable(shown)
        await asyncio.wait_for(shown(client), 30)

    assert capsys.readouterr().out == printed


def test_calls_of_the_page_exist() -> None:
    methods = trigger_service_pb2.DESCRIPTOR.services_by_name["TriggerService"].methods_by_name
    named = set(re.findall(r"\b(?:[A-Z][a-z]+Triggers?|ListFirings|PublishEvent|ReceiveDue)\b", PAGE))

    assert len(named) > 10
    assert sorted(named - set(methods) - {"DueTrigger"}) == []
