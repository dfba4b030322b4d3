"""docs/flows.md is right: its flow in Python equals the one in YAML, its tables list all fields with their defaults."""

import re
from typing import Any

import yaml

from tests.house.pages import DOCUMENTS, blocks
from tradewind.scheduler.domain import weather
from tradewind.scheduler.domain.flow_analysis import MAX_COMPONENTS
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.node_definition import NodeDefinition
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.domain.weather_nodes import _EDGE_FIELDS, _NODE_FIELDS

PAGE = DOCUMENTS["docs/flows.md"]


def rows(heading: str) -> dict[str, str]:
    """Return the fields in the table below a heading, each with its default."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    read = re.findall(r"^\| (`.+?`) \| .* \| ?(.*?) ?\|$", table, re.MULTILINE)
    return {name: default for names, default in read for name in re.findall(r"`(\w+)`", names)}


def test_flow_in_python_equals_the_one_in_yaml() -> None:
    scope: dict[str, Any] = {}
    exec(blocks(PAGE, "python")[0], scope)
    written = yaml.safe_load(blocks(PAGE, "yaml")[0])

    assert scope["flow"].to_weather() == {**written, "interval": "1m"}


def test_tables_list_every_field() -> None:
    assert sorted(rows("Fields of a flow")) == sorted(weather.FLOW_FIELDS)
    assert sorted(rows("Fields of a node")) == sorted(_NODE_FIELDS)
    assert [name for name in _EDGE_FIELDS if f"`{name}`" not in PAGE] == []


def test_defaults_and_limits_are_those_of_the_code() -> None:
    node = NodeDefinition("a", "b")
    flow = FlowDefinition(ScheduleDefinition(), (node,))
    flow_rows, node_rows = rows("Fields of a flow"), rows("Fields of a node")
    for name in ("overlap", "failure_policy", "keep_cycles"):
        assert flow_rows[name].strip("`") == str(getattr(flow, name))
    assert node_rows["run_if"].strip("`") == node.run_if
    assert node_rows["timeout"] == f"{node.start_to_close_ms // 60_000} min"
    assert node_rows["schedule_to_start"] == f"{node.schedule_to_start_ms // 60_000} min"
    limits = PAGE.partition("\n## Limits\n")[2]
    assert f"{weather.LARGEST_FLOW_BYTES // 1024**2} MiB as JSON, {MAX_COMPONENTS} components" in limits
    assert f"{weather.MAX_NODES:,} nodes".replace(",", " ") in limits
    assert f"up to {weather.LONGEST_DESCRIPTION} characters" in PAGE
