"""The README is right: its code runs, its flow is sound."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.house.project import ROOT
from tradewind.api.scheduler.v1 import scheduler_service_pb2
from tradewind.scheduler.domain.flow_analysis import analyze
from tradewind.scheduler.domain.weather import read_weather_json
from tradewind.testing import running_stack

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


async def test_node_and_its_test_run() -> None:
    node, _, _, test = blocks("python")
    scope: dict[str, Any] = {}
    exec(node.replace("Worker([moving_average]).run()", ""), scope)
    exec(test, scope)
    await scope["test_the_average"]()


async def test_client_code_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import examples.momentum.nodes as nodes

    # Not the ledger of whoever works here and follows the README.
    monkeypatch.setenv("MOMENTUM_LEDGER", str(tmp_path / "ledger.jsonl"))
    _, _, shown, _ = blocks("python")
    body = shown.split("async with Client() as client:\n")[1]
    scope: dict[str, Any] = {}
    exec(f"async def shown(client):\n{body}", scope)
    offered = [value for value in vars(nodes).values() if hasattr(value, "type") and callable(value)]
    async with running_stack(offered) as client:
        await scope["shown"](client)
    assert "'month': '2001-04'" in capsys.readouterr().out


def test_flow_has_no_faults() -> None:
    (flow,) = blocks("json")
    assert not analyze(read_weather_json(flow), None).violations


def test_python_flow_equals_the_json_flow() -> None:
    (flow,) = blocks("json")
    _, built, _, _ = blocks("python")
    scope: dict[str, Any] = {}
    exec(built, scope)
    assert scope["flow"].to_weather() == json.loads(flow)


def test_method_in_the_grpcurl_example_exists() -> None:
    (method,) = re.findall(r"tradewind\.api\.scheduler\.v1\.SchedulerService/(\w+)", README)
    assert method in scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods_by_name
