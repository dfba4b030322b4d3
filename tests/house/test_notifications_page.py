"""docs/notifications.md is right: its code runs, its calls and settings exist."""

import asyncio
import re
import textwrap
from typing import Any

import pytest

from examples.screening.nodes import screen_share
from tests.house.project import ROOT
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2
from tradewind.client import NotificationKind, TaskEventKind
from tradewind.flow import Flow
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.testing import running_stack

PAGE = (ROOT / "docs" / "notifications.md").read_text(encoding="utf-8")


async def test_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    following, node, notifications = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    flow = Flow("screening", "1h")
    flow.node("screen", "screen_share", {"share": "IBM", "until": "2005-06"})
    ends = {following: "queued completed", node: "completed 1 ", notifications: "maintenance at noon: for ten minutes"}
    async with running_stack([screen_share]) as client:
        await client.register_flow("screening", flow)
        for code, last in ends.items():
            scope: dict[str, Any] = {}
            exec(f"async def shown(client):\n{textwrap.indent(code, '    ')}", scope)
            await asyncio.wait_for(scope["shown"](client), 60)
            assert capsys.readouterr().out.splitlines()[-1].startswith(last)


def test_kinds_calls_and_settings_of_the_page_exist() -> None:
    words = set(re.findall(r"`(\w+)`", PAGE))
    assert {each.value for each in (*TaskEventKind, *NotificationKind)} - {"unknown"} <= words
    service = node_task_manager_service_pb2.DESCRIPTOR.services_by_name["NodeTaskManagerService"]
    calls = {word for word in words if re.match(r"(?:Watch|List|Mark|Publish)[A-Z]", word)}
    assert calls - set(service.methods_by_name) == set()
    settings = {name.removeprefix("TRADEWIND_").lower() for name in words if name.startswith("TRADEWIND_")}
    assert settings
    assert settings <= set(NodeTaskManagerSettings.model_fields)
