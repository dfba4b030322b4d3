"""Builds Weather Syntax for the tests of this folder."""

from typing import Any

from tradewind.scheduler.domain.flow_analysis import FlowAnalysis, analyze
from tradewind.scheduler.domain.node_types import NodeTypeCatalogue
from tradewind.scheduler.domain.weather import read_weather, read_weather_json

Weather = dict[str, Any]


def node(node_id: str, node_type: str = "feed", **fields: Any) -> Weather:
    return {"id": node_id, "type": node_type, **fields}


def edge(source: str, target: str, source_handle: str = "out", target_handle: str = "in") -> Weather:
    return {"source": source, "source_handle": source_handle, "target": target, "target_handle": target_handle}


def flow(*, nodes: Any = None, edges: Any = None, **fields: Any) -> Weather:
    """Return a flow without faults, except those that the arguments bring."""
    return {
        "interval": 60,
        "nodes": [node("a"), node("b")] if nodes is None else nodes,
        "edges": [edge("a", "b")] if edges is None else edges,
        **fields,
    }


def analyzed(weather: object, catalogue: NodeTypeCatalogue | None = None, *, from_struct: bool = False) -> FlowAnalysis:
    return analyze(read_weather(weather, from_struct=from_struct), catalogue)


def faults_of(
    weather: object, catalogue: NodeTypeCatalogue | None = None, *, from_struct: bool = False
) -> list[tuple[str, str]]:
    """Return the paths and messages of all violations; check that there is a definition exactly when there are none."""
    found = analyzed(weather, catalogue, from_struct=from_struct)
    assert (found.definition is None) == bool(found.violations)
    return [(violation.path, violation.message) for violation in found.violations]


def faults_of_json(text: str) -> list[tuple[str, str]]:
    return [(violation.path, violation.message) for violation in analyze(read_weather_json(text)).violations]
