"""docs/batches.md is right: its code runs, its calls exist."""

import asyncio
import re
import textwrap
from typing import Any

import pytest

from examples.screening.nodes import screen_share
from tests.house.project import ROOT
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2
from tradewind.client import Client, SyncClient
from tradewind.testing import running_stack

PAGE = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the page's code blocks in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


async def test_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, synchronous, more = blocks("python")
    async with running_stack([screen_share]) as client:
        await run_block(first, client)
        shown = capsys.readouterr().out.splitlines()
        assert (shown[0], shown[-13].split()[-1], shown[-12].split()[0]) == ("-0.151", "100.0", "2005-01")
        scope: dict[str, Any] = {"SyncClient": SyncClient, "address": client.addresses.node_task_manager}
        await asyncio.to_thread(exec, synchronous, scope)
        assert capsys.readouterr().out == "3 of 3\n"
        await run_block(more, client)
        assert capsys.readouterr().out.strip() in ("cancelled", "completed")


async def run_block(code: str, client: Client) -> None:
    scope: dict[str, Any] = {}
    exec(f"async def shown(client):\n{textwrap.indent(code, '    ')}", scope)
    await asyncio.wait_for(scope["shown"](client), 30)


def test_calls_of_the_page_exist() -> None:
    methods = node_task_manager_service_pb2.DESCRIPTOR.services_by_name["NodeTaskManagerService"].methods_by_name
    named = re.findall(r"\b(?:Submit|Get|List|Cancel|Delete|Watch|Terminate)(?:Task|Batch|Node)\w*", PAGE)
    assert sorted(set(named) - set(methods)) == []
