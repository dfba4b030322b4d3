"""What docs/waiting.md shows is so: its node runs, its configs fit, its commands exist, its numbers are the limits."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.house.project import ROOT
from tradewind.cli.app import app
from tradewind.node_task_manager.domain import waiting
from tradewind.server.built_in import BUILT_IN
from tradewind.testing import run_node
from tradewind.worker import Context, Wait, node

PAGE = (ROOT / "docs" / "waiting.md").read_text(encoding="utf-8")
COMMANDS = sorted({" ".join(line.split()[2:4]) for line in re.findall(r"^\$ tradewind .*$", PAGE, re.MULTILINE)})


async def test_its_node_waits() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {"node": node, "Context": Context, "Wait": Wait, "timedelta": timedelta}
    exec(shown, scope)
    run = await run_node(scope["pay"], euros=5)
    assert run.wait is not None
    assert (run.wait.signal, run.wait.delay) == ("paid", timedelta(hours=2))


def test_its_configs_fit() -> None:
    (approval,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    node_of_page = json.loads(approval)
    assert BUILT_IN["approval"].faults(node_of_page["config"]) == []
    (delay,) = re.findall(r'`(\{"type": "delay".*?\}\})`', PAGE)
    assert BUILT_IN["delay"].faults(json.loads(delay)["config"]) == []
    assert [name for name in BUILT_IN if f"node type `{name}`" not in PAGE] == []


def test_its_numbers_are_the_limits() -> None:
    assert f"up to {waiting.MOST_KEPT} of a node task and {waiting.MOST_KEPT_OF_RUN} of a run" in PAGE
    assert f"JSON of up to {waiting.MOST_PAYLOAD_BYTES // 1024} KiB" in PAGE
    assert f"the latest {waiting.MOST_REQUESTS} of the node task" in PAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_exists(command: str) -> None:
    ran = CliRunner().invoke(app, [*command.split(), "--help"])
    assert ran.exit_code == 0, ran.output
