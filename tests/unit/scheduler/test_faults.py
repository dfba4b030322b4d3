"""Every fault of a flow definition, in the words that people see."""

from typing import Any

import pytest

from tests.unit.scheduler.fault_cases import FLOW_CASES, A
from tests.unit.scheduler.flows import analyzed, edge, faults_of, faults_of_json, node
from tests.unit.scheduler.graph_fault_cases import GRAPH_CASES

CASES = [*FLOW_CASES, *GRAPH_CASES]


@pytest.mark.parametrize(("weather", "faults"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_faulty_definition_is_refused(weather: Any, faults: list[tuple[str, str]]) -> None:
    assert faults_of(weather) == faults


def test_all_faults_are_reported_at_once_with_the_structure() -> None:
    nodes = [A, node("a"), node("b c"), {"id": "d"}, node("e", config={"k": {"$secret": "?"}}), node("f", runif="x")]
    edges = [edge("a", "dd"), edge("d", "e"), edge("e", "d"), edge("f", "f"), {"source": "a", "target": "b c"}]
    found = analyzed({"intervall": 5, "nodes": nodes, "edges": edges, "keep_cycles": 0})
    assert [violation.path for violation in found.violations] == [
        "intervall",
        "interval",
        "keep_cycles",
        "nodes[2].id",
        "nodes[3].type",
        "nodes[4].config.k.$secret",
        "nodes[5].runif",
        "edges[4].source_handle",
        "edges[4].target_handle",
        "nodes[1].id",
        "edges[0].target",
        "edges[3]",
        "edges[2]",
    ]
    assert found.definition is None
    assert [(part.nodes, part.is_dag) for part in found.structure.components] == [
        (("a", "b c"), True),
        (("d", "e"), False),
        (("f",), False),
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", [("weather_json", "not JSON, line 1, column 1: Expecting value")]),
        ('{"interval": 60,\n  "nodes": [}', [("weather_json", "not JSON, line 2, column 13: Expecting value")]),
        ("{} {}", [("weather_json", "not JSON, line 1, column 4: Extra data")]),
        ("[" * 100_000, [("weather_json", "nested too deeply to be read")]),
        (
            '{"interval": ' + "9" * 5000 + "}",
            [("weather_json", "contains an integer with more digits than can be read")],
        ),
        ("7", [("flow", "must be an object with interval, nodes and edges, is 7")]),
        (" " * 3_145_729, [("weather_json", "3145729 bytes of JSON; at most 3145728 (3 MiB): split the flow")]),
        (
            '{"interval": 1, "nodes": [{"id": "a", "id": "b", "type": "t", "config": {"n": [NaN, -Infinity, 1e999]}}]}',
            [
                ("weather_json", 'the key "id" occurs twice in one object'),
                *(
                    (
                        f"nodes[0].config.n[{i}]",
                        "NaN, Infinity and numbers beyond 1.8e308 are not JSON; use null or text",
                    )
                    for i in range(3)
                ),
            ],
        ),
    ],
)
def test_faulty_json_text_is_refused(text: str, faults: list[tuple[str, str]]) -> None:
    assert faults_of_json(text) == faults
