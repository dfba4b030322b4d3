"""Nodes that run once for each item of a list, as flows define them."""

import json
from typing import Any

import pytest

from tests.unit.scheduler.flows import analyzed, edge, faults_of, flow, node
from tests.unit.scheduler.test_declared_types import SINGLE, Catalogue, Declared
from tradewind.scheduler.domain.fan_out import FanOut
from tradewind.server.json_types import ANY

RULE = "must be a whole number of items from 0 to 10000, or a share of them over 0 and under 1, is "


def mapped(**fields: Any) -> dict[str, Any]:
    return flow(nodes=[node("a"), node("b", **{"map": "in", **fields})])


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, FanOut("in")),
        ({"max_parallel": 4, "min_success": 0.9}, FanOut("in", 4, 0.9)),
        ({"min_success": 0}, FanOut("in", 100, 0)),
        # JSON has only one kind of number: this means one item.
        ({"min_success": 1.0}, FanOut("in", 100, 1)),
        ({"max_parallel": None, "min_success": None}, FanOut("in")),
    ],
)
def test_fan_out_fields_round_trip(fields: dict[str, Any], read: FanOut) -> None:
    definition = analyzed(mapped(**fields)).definition
    assert definition is not None
    assert definition.nodes[1].fan_out == read
    assert analyzed(json.loads(definition.to_json())).definition == definition
    (plan,) = definition.plans()
    assert plan.nodes[1].fan_out == read


def test_plan_digest_without_fan_out_is_unchanged() -> None:
    plain, over = analyzed(flow()).definition, analyzed(mapped()).definition
    assert plain is not None
    assert over is not None
    # The digest is the same as without fan-out, so that stored plans stay known.
    assert plain.plans()[0].digest == "8c20ce67f7e312c0835a19104485f2c93aa8d214ab48a71e0e9f544fbaeb250c"
    assert over.plans()[0].digest != plain.plans()[0].digest


@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        ({"map": 7}, [("nodes[1].map", "must be text, is 7")]),
        ({"max_parallel": 0}, [("nodes[1].max_parallel", "must be a whole number from 1 to 10000, is 0")]),
        ({"max_parallel": 10_001}, [("nodes[1].max_parallel", "must be a whole number from 1 to 10000, is 10001")]),
        *(
            ({"min_success": value}, [("nodes[1].min_success", f"{RULE}{shown}; by default, all must complete")])
            for value, shown in ((-1, "-1"), (1.5, "1.5"), (10_001, "10001"), (True, "true"), ("all", '"all"'))
        ),
        (
            {"map": None, "max_parallel": 4, "min_success": 2},
            [
                ("nodes[1].max_parallel", 'needs "map", the input handle whose list the node runs over'),
                ("nodes[1].min_success", 'needs "map", the input handle whose list the node runs over'),
            ],
        ),
        (
            {"map": "inn"},
            [
                (
                    "nodes[1].map",
                    'no edge leads into input "inn", whose list the node is to run over; did you mean "in"?',
                )
            ],
        ),
        (
            {"map": "prices"},
            [
                (
                    "nodes[1].map",
                    'no edge leads into input "prices", whose list the node is to run over; edges lead into "in"',
                )
            ],
        ),
    ],
)
def test_invalid_fan_out_is_reported_with_its_path(fields: dict[str, Any], faults: list[tuple[str, str]]) -> None:
    assert faults_of(mapped(**fields)) == faults


def test_mapped_input_needs_exactly_one_edge() -> None:
    entry = flow(nodes=[node("a", map="in"), node("b")])
    needs_node = "; a list known beforehand comes from a node too"
    message = f'no edge leads into input "in", whose list the node is to run over{needs_node}'
    assert faults_of(entry) == [("nodes[0].map", message)]
    twice = flow(nodes=[node("a"), node("b", map="in")], edges=[edge("a", "b"), edge("a", "b", "more")])
    assert faults_of(twice) == [("nodes[1].map", '2 edges lead into input "in"; exactly one must bring the list')]


def test_mapped_node_has_an_errors_output_that_shadows_one_of_its_type() -> None:
    nodes = [node("a", "source"), node("b", "work", map="in"), node("c", "sink")]
    weather = flow(nodes=nodes, edges=[edge("a", "b"), edge("b", "c", "errors")])
    source, sink = Declared(outputs={"out": ANY}), Declared(inputs={"in": SINGLE})
    work = Declared(inputs={"in": SINGLE}, outputs={"out": ANY})
    assert faults_of(weather, Catalogue({"source": source, "work": work, "sink": sink})) == []
    own = Declared(inputs={"in": SINGLE}, outputs={"out": ANY, "errors": ANY})
    warnings = analyzed(weather, Catalogue({"source": source, "work": own, "sink": sink})).warnings
    assert [(each.path, each.message) for each in warnings] == [
        (
            "nodes[1].map",
            'output "errors" of a mapped node names the items that did not complete; what its type emits there is '
            "dropped",
        )
    ]
    nodes[1] = node("b", "work")
    faults = faults_of(
        flow(nodes=nodes, edges=weather["edges"]), Catalogue({"source": source, "work": work, "sink": sink})
    )
    assert faults == [
        ("edges[1].source_handle", 'node type "work" has no output handle "errors"; it has "out"'),
    ]
