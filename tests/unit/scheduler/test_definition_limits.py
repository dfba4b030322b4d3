"""How large and how deep a flow definition may be, and how much is reported about one that exceeds this."""

import json
import time
from typing import Any

import pytest

from tests.unit.scheduler.fault_cases import A
from tests.unit.scheduler.flows import edge, faults_of, faults_of_json, flow, node
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1.scheduler_service_pb2 import RegisterFlowRequest
from tradewind.scheduler.rpc.definition_mapping import read_draft


def test_integers_beyond_2_53_are_refused_in_a_struct_only() -> None:
    for number in (2**53, 2**53 + 1, -(2**53), 2**60):
        weather = flow(nodes=[node("a", config={"x": number, "y": 2**53 - 1})], edges=[])
        assert faults_of_json(json.dumps(weather)) == []
        weather["nodes"][0]["config"]["x"] = float(number)
        assert faults_of(weather, from_struct=True) == [
            (
                "nodes[0].config.x",
                f"{float(number)!r} is not below 2^53, so it may have been rounded in the Struct; "
                "send the definition as weather_json",
            )
        ]


def test_largest_allowed_values_are_accepted() -> None:
    largest = flow(nodes=[node("a", config={"text": "x" * (262_144 - len('{"text":""}'))})], edges=[])
    assert faults_of(largest) == []
    label = {f"{i}": "x" * 256 for i in range(32)}
    assert faults_of(flow(labels=label, keep_cycles=10_000, description="x" * 4096)) == []


def test_definition_over_3_mib_is_refused() -> None:
    nodes = [node(f"n{i}", config={"text": "x" * 250_000}) for i in range(13)]
    (fault,) = faults_of(flow(nodes=nodes, edges=[]))
    assert fault == ("flow", "3250650 bytes of JSON; at most 3145728 (3 MiB): split the flow")


def test_definition_that_no_message_holds_with_its_structure_is_refused() -> None:
    def fan_in(count: int) -> Any:
        names = [f"n{i:05}{'x' * 122}" for i in range(count)]
        return flow(nodes=[node(each) for each in (*names, "last")], edges=[edge(each, "last") for each in names])

    assert faults_of(fan_in(5_500)) == []
    (fault,) = faults_of(fan_in(7_500))
    assert fault[0] == "flow"
    assert fault[1].endswith(
        " bytes with the lists of nodes and entry nodes of its components; at most 4063232: give nodes shorter ids, or "
        "split the flow"
    )


def test_over_ten_thousand_nodes_are_refused() -> None:
    nodes = [node(f"n{i}") for i in range(10_001)]
    edges = [edge("n0", f"n{i}") for i in range(1, 10_001)]
    assert faults_of(flow(nodes=nodes, edges=edges)) == [("nodes", "10001 nodes; at most 10000: split the flow")]


def test_excessive_nodes_or_edges_are_one_fault() -> None:
    assert faults_of({"interval": 1, "nodes": [{}] * 700_000, "edges": [{}]}) == [
        ("nodes", "700000 nodes; at most 10000: split the flow")
    ]
    assert faults_of({"interval": 1, "nodes": [{}], "edges": [{}] * 100_001}) == [
        ("edges", "100001 edges; at most 100000: split the flow")
    ]


@pytest.mark.parametrize(("items", "most"), [("nodes", 10_000), ("edges", 100_000)])
async def test_excessive_nodes_or_edges_of_a_typed_definition_are_refused_within_a_second(
    items: str, most: int
) -> None:
    one = flow_pb2.FlowSpec()
    getattr(one, items).add()
    request = RegisterFlowRequest(spec=flow_pb2.FlowSpec.FromString(one.SerializeToString() * 1_900_000))
    began = time.process_time()
    draft = await read_draft("spec", request)
    assert [(fault.path, fault.message) for fault in draft.faults.violations()] == [
        (items, f"1900000 {items}; at most {most}: split the flow")
    ]
    assert time.process_time() - began < 1


def test_over_a_thousand_components_are_refused() -> None:
    assert faults_of(flow(nodes=[node(f"n{i}") for i in range(1_000)], edges=[])) == []
    (fault,) = faults_of(flow(nodes=[node(f"n{i}") for i in range(1_001)], edges=[]))
    assert fault == (
        "nodes",
        "1001 components (groups of nodes that no edge connects); at most 1000: connect them or split the flow",
    )


def test_nesting_depth_is_limited() -> None:
    value: Any = 1
    for _ in range(60):
        value = [value]
    assert faults_of(flow(nodes=[node("a", config={"x": value})], edges=[])) == []
    (fault,) = faults_of(flow(nodes=[node("a", config={"x": [value]})], edges=[]))
    assert fault == ("nodes[0].config.x" + "[0]" * 60, "nested more than 64 levels deep")


def test_hundred_faults_are_reported_and_the_rest_counted() -> None:
    hundred = flow(nodes=[A], edges=[edge("a", f"x{i}") for i in range(100)])
    assert len(faults_of(hundred)) == 100
    more = faults_of(flow(nodes=[A], edges=[edge("a", f"x{i}") for i in range(137)], interval=-1))
    assert len(more) == 101
    assert more[0] == ("interval", "must not be negative, is -1")
    assert more[-1] == ("flow", "and 38 more")


@pytest.mark.parametrize(
    "weather",
    [
        flow(
            nodes=[node(f"node_{'x' * 110}_{i:05}") for i in range(10_000)],
            edges=[edge(f"mode_{'x' * 110}_{i:05}", "a") for i in range(5_000)],
        ),
        {"nodes": [{}] * 20_000, "edges": [{}] * 100_000},
        {f"f{i}": 0 for i in range(250_000)},
        flow(nodes=[node("a", config={"x": [{"$secret": 0}] * 10_000})], edges=[]),
    ],
    ids=["long names nearly alike", "nodes and edges without anything", "unknown fields", "secrets without names"],
)
def test_worst_input_is_checked_within_seconds(weather: Any) -> None:
    began = time.process_time()
    assert len(faults_of(weather)) == 101
    assert time.process_time() - began < 5
