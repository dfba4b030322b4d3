"""Analysing and registering flows."""

import itertools
import json
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tradewind.api.node_task_manager.v1 import cache_pb2, node_task_pb2
from tradewind.api.registry.v1 import node_type_pb2
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2

SPECIFIED: dict[str, Any] = {
    "interval": 60,
    "nodes": [
        {"id": "node_A", "type": "binance_price_node", "config": {"symbol": "BTCUSDT", "interval": "1m"}},
        {"id": "node_B", "type": "ai_model_node", "config": {"model": "gpt-4"}},
    ],
    "edges": [{"source": "node_A", "source_handle": "kline_data", "target": "node_B", "target_handle": "price_input"}],
}
"""The flow of the specification, word for word."""


def weather(value: dict[str, Any]) -> Struct:
    return ParseDict(value, Struct())


async def test_flow_of_the_specification_registers_unchanged(scheduler: Client) -> None:
    request = pb2.RegisterFlowRequest(flow_id="spec", weather=weather(SPECIFIED))
    response = await scheduler.stub.RegisterFlow(request)
    assert response.changed
    flow = response.flow
    assert (flow.flow_id, flow.user_id, flow.revision, flow.last_cycle) == ("spec", "default", 1, -1)
    assert flow.status == flow_pb2.FLOW_STATUS_REGISTERED
    assert json.loads(flow.config_json) == SPECIFIED
    assert flow.structure.component_count == 1
    component = flow.structure.components["0"]
    assert (list(component.nodes), list(component.entry_nodes)) == (["node_A", "node_B"], ["node_A"])
    assert (component.node_count, component.is_dag) == (2, True)
    assert not flow.HasField("next_execution")
    assert flow.HasField("created_at")
    assert flow.etag
    assert {warning.path for warning in response.warnings} == {"nodes[0].type", "nodes[1].type"}


async def test_three_forms_of_a_definition_are_equivalent(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(interval="60")
    for node in SPECIFIED["nodes"]:
        spec.nodes.add(id=node["id"], type=node["type"], config_json=json.dumps(node["config"]))
    spec.edges.add(**SPECIFIED["edges"][0])
    forms = [
        pb2.RegisterFlowRequest(flow_id="f", weather=weather(SPECIFIED)),
        pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(SPECIFIED)),
        pb2.RegisterFlowRequest(flow_id="f", spec=spec),
    ]
    answers = [await scheduler.stub.RegisterFlow(form) for form in forms]
    assert [answer.changed for answer in answers] == [True, False, False]
    assert {answer.flow.etag for answer in answers} == {answers[0].flow.etag}


async def test_every_field_of_a_typed_definition_is_stored(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(
        interval="500ms",
        overlap=flow_pb2.OVERLAP_POLICY_ALLOW,
        failure_policy=node_task_pb2.FAILURE_POLICY_CONTINUE,
        timeout="1h",
        keep_cycles=7,
        keep_for="2h",
        labels={"team": "a"},
        description="what it does",
    )
    spec.nodes.add(
        id="n",
        type="t",
        run_if=node_task_pb2.RUN_IF_ALL_DONE,
        schedule_to_start="2m",
        timeout="0",
        config_json='{"a":1}',
        retry=flow_pb2.RetrySpec(attempts=3, initial="5s", factor=3, maximum="5m", jitter=0, non_retryable=["E"]),
        cache=flow_pb2.CacheSpec(name="screening", key="k", scope=cache_pb2.CACHE_SCOPE_GLOBAL, ttl="10m"),
    )
    spec.nodes.add(id="m", type="t", map="in", max_parallel=4, min_success_ratio=0.9)
    spec.nodes.add(id="k", type="t", map="in", min_success_count=2)
    spec.nodes.add(id="l", type="t", map="in", min_success_ratio=1)
    for target in "mkl":
        spec.edges.add(source="n", source_handle="out", target=target, target_handle="in")
    flow = (await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))).flow
    assert json.loads(flow.config_json) == {
        "interval": "500ms",
        "overlap": "allow",
        "failure_policy": "continue",
        "timeout": 3600,
        "keep_cycles": 7,
        "keep_for": 7200,
        "labels": {"team": "a"},
        "description": "what it does",
        "nodes": [
            {
                "id": "n",
                "type": "t",
                "config": {"a": 1},
                "run_if": "all_done",
                "schedule_to_start": 120,
                "timeout": 0,
                "retry": {
                    "attempts": 3,
                    "initial": 5,
                    "factor": 3,
                    "maximum": 300,
                    "jitter": 0,
                    "non_retryable": ["E"],
                },
                "cache": {"name": "screening", "key": "k", "scope": "global", "ttl": 600},
            },
            {"id": "m", "type": "t", "map": "in", "max_parallel": 4, "min_success": 0.9},
            {"id": "k", "type": "t", "map": "in", "min_success": 2},
            {"id": "l", "type": "t", "map": "in"},
        ],
        "edges": [{"source": "n", "source_handle": "out", "target": target, "target_handle": "in"} for target in "mkl"],
    }


async def test_min_success_ratio_outside_0_to_1_is_refused(scheduler: Client) -> None:
    for share in (0, 1.5, -1):
        spec = flow_pb2.FlowSpec(interval="0")
        spec.nodes.add(id="a", type="t")
        spec.nodes.add(id="b", type="t", map="in", min_success_ratio=share)
        spec.edges.add(source="a", source_handle="out", target="b", target_handle="in")
        analysis = await scheduler.stub.AnalyzeFlow(
            pb2.AnalyzeFlowRequest(definition=flow_pb2.FlowDefinition(spec=spec))
        )
        assert [each.path for each in analysis.violations] == ["nodes[1].min_success_ratio"]


async def test_new_revision_keeps_cycles_and_creation_time(scheduler: Client) -> None:
    first = await scheduler.register("f", "a", labels={"team": "a"})
    await scheduler.run()
    again = await scheduler.register("f", "a", "b", labels={"team": "b"})
    assert (again.revision, again.last_cycle, again.created_at) == (2, 0, first.created_at)
    assert dict(again.labels) == {"team": "b"}
    assert again.etag != first.etag


async def test_unknown_cache_is_refused(scheduler: Client, peers: Peers) -> None:
    nodes = [{"id": "a", "type": "t", "cache": "screning"}, {"id": "b", "type": "t", "cache": "analysis"}]
    nodes.append({"id": "c", "type": "t", "cache": "mine"})
    request = pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps({"interval": 0, "nodes": nodes}))
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert error.violations == [
        ("nodes[0].cache", 'no cache "screning"; did you mean "screening"?'),
        (
            "nodes[2].cache",
            'no cache "mine"; there are "analysis", "screening", and more can be added to the system\'s configuration',
        ),
    ]
    peers.node_tasks.caches += ["mine", "screning"]
    assert (await scheduler.stub.RegisterFlow(request)).changed


async def test_all_faults_of_a_registration_are_reported_at_once(scheduler: Client) -> None:
    bad = {
        "interval": "soon",
        "colour": "red",
        "nodes": [{"id": "a", "type": "t"}, {"id": "a", "type": "t"}, {"id": "no good"}],
        "edges": [{"source": "a", "source_handle": "x", "target": "b", "target_handle": "y"}],
    }
    request = pb2.RegisterFlowRequest(
        flow_id="-", user_id="me too", request_id="with space", weather_json=json.dumps(bad), labels={"a b": "c"}
    )
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    paths = [path for path, _ in error.violations]
    for path in (
        "flow_id",
        "user_id",
        "request_id",
        "interval",
        "colour",
        "nodes[1].id",
        "nodes[2].id",
        "nodes[2].type",
    ):
        assert path in paths, (path, error.violations)
    assert any(path.startswith("labels") for path in paths)
    nothing = pb2.RegisterFlowRequest(flow_id="f")
    error = await refused(scheduler.stub.RegisterFlow(nothing), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert error.violations[0][0] == "definition"


async def test_typed_definition_with_invalid_config_and_unknown_enum_is_refused(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(interval="1")
    spec.nodes.add(id="n", type="t", config_json="{", run_if=77)
    request = pb2.RegisterFlowRequest(flow_id="f", spec=spec)
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert [path for path, _ in error.violations] == ["nodes[0].config_json", "nodes[0].run_if"]


async def test_analysis_returns_structure_and_faults_and_stores_nothing(scheduler: Client) -> None:
    circle = {
        "interval": 1,
        "nodes": [{"id": name, "type": "t"} for name in "abc"],
        "edges": [
            {"source": "a", "source_handle": "x", "target": "b", "target_handle": "y"},
            {"source": "b", "source_handle": "x", "target": "a", "target_handle": "y"},
        ],
    }
    definition = flow_pb2.FlowDefinition(weather=weather(circle))
    response = await scheduler.stub.AnalyzeFlow(pb2.AnalyzeFlowRequest(definition=definition))
    assert response.structure.component_count == 2
    component = response.structure.components["0"]
    assert (component.is_dag, component.error) == (False, "Contains cycle")
    assert list(component.cycle_path) == ["a", "b", "a"]
    assert ["a -> b -> a" in violation.message for violation in response.violations] == [True]
    assert (await scheduler.stub.ListFlows(pb2.ListFlowsRequest())).flows == []
    nothing = await scheduler.stub.AnalyzeFlow(pb2.AnalyzeFlowRequest())
    assert nothing.violations[0].path == "definition"


async def test_definition_is_checked_against_declarations_of_live_workers(scheduler: Client, peers: Peers) -> None:
    schema = '{"type":"object","properties":{"window":{"type":"integer"}},"additionalProperties":false}'
    peers.registry.offer(
        node_type_pb2.NodeType(
            type="average",
            inputs=[node_type_pb2.InputHandle(name="prices", required=True)],
            outputs=[node_type_pb2.OutputHandle(name="average")],
            config_schema_json=schema,
        )
    )
    flow = {
        "interval": 1,
        "nodes": [
            {"id": "a", "type": "average", "config": {"window": "ten"}},
            {"id": "b", "type": "average", "config": {"window": {"$secret": "w"}, "widow": 1, "x": 1}},
        ],
        "edges": [
            {"source": "a", "source_handle": "avrage", "target": "b", "target_handle": "prices"},
            {"source": "a", "source_handle": "average", "target": "b", "target_handle": "prices"},
        ],
    }
    request = pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(flow))
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    messages = dict(error.violations)
    config = "nodes[1].config"
    assert messages.pop(f"{config}.widow") == 'unknown key; did you mean "window"?'
    assert messages.pop(f"{config}.x") == 'unknown key; it has "window"'
    assert set(messages) == {"nodes[0].config.window", "edges[0].source_handle", "edges[1].target_handle"}
    assert 'did you mean "average"' in messages["edges[0].source_handle"]
    assert len(peers.registry.requested) == 1
    await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert len(peers.registry.requested) == 1


async def test_analysis_warns_of_unoffered_node_types_besides_faults(scheduler: Client, peers: Peers) -> None:
    peers.registry.offer(node_type_pb2.NodeType(type="average"))
    flow = {"interval": 1, "nodes": [{"id": "a", "type": "avrage"}, {"id": "a", "type": "average"}]}
    definition = flow_pb2.FlowDefinition(weather_json=json.dumps(flow))
    response = await scheduler.stub.AnalyzeFlow(pb2.AnalyzeFlowRequest(definition=definition))
    assert [each.path for each in response.violations] == ["nodes[1].id"]
    assert [each.path for each in response.warnings] == ["nodes[0].type"]
    assert response.warnings[0].message.startswith('no live worker offers node type "avrage"')


async def test_analysis_reports_a_schedule_that_is_over(scheduler: Client) -> None:
    flow = {"schedule": {"at": "2001-01-01T00:00:00Z"}, "nodes": [{"id": "a", "type": "a"}]}
    definition = flow_pb2.FlowDefinition(weather_json=json.dumps(flow))
    analysis = await scheduler.stub.AnalyzeFlow(pb2.AnalyzeFlowRequest(definition=definition))
    assert [(each.path, each.message[:26]) for each in analysis.violations] == [
        ("schedule", "has no times left: all of "),
    ]
    request = pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(flow))
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert error.violations == [(each.path, each.message) for each in analysis.violations]


async def test_declarations_of_many_node_types_are_requested_in_parts(scheduler: Client, peers: Peers) -> None:
    peers.registry.max_types = 2
    types = [f"t{number}" for number in range(7)]
    for name in types:
        peers.registry.offer(node_type_pb2.NodeType(type=name, inputs=[node_type_pb2.InputHandle(name="prices")]))
    flow = {
        "interval": 1,
        "nodes": [{"id": name, "type": name} for name in ["source", *types]],
        "edges": [
            {"source": "source", "source_handle": "out", "target": name, "target_handle": "price"} for name in types
        ],
    }
    request = pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(flow))
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert set(dict(error.violations)) == {f"edges[{number}].target_handle" for number in range(7)}


async def test_edge_whose_values_never_fit_is_a_warning(scheduler: Client, peers: Peers) -> None:
    text, numbers = '{"type":"string"}', '{"type":"array","items":{"type":"number"}}'
    output = node_type_pb2.OutputHandle(name="symbol", schema_json=text)
    prices = node_type_pb2.InputHandle(name="prices", schema_json=numbers)
    peers.registry.offer(node_type_pb2.NodeType(type="feed", outputs=[output]))
    peers.registry.offer(node_type_pb2.NodeType(type="average", inputs=[prices]))
    flow = {
        "interval": 1,
        "nodes": [{"id": "feed", "type": "feed"}, {"id": "average", "type": "average"}],
        "edges": [{"source": "feed", "source_handle": "symbol", "target": "average", "target_handle": "prices"}],
    }
    response = await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", weather_json=json.dumps(flow)))
    message = 'output "symbol" of node "feed" is of type string, but input "prices" of node "average" takes array'
    assert [(each.path, each.message) for each in response.warnings] == [("edges[0]", message)]


async def test_flow_registers_with_a_warning_when_the_registry_is_down(scheduler: Client, peers: Peers) -> None:
    peers.registry.down = True
    request = pb2.RegisterFlowRequest(flow_id="f", weather=weather(SPECIFIED))
    response = await scheduler.stub.RegisterFlow(request)
    assert response.changed
    assert ["registry" in warning.message for warning in response.warnings] == [True]


async def test_repeated_registration_request_is_idempotent(scheduler: Client) -> None:
    first = await scheduler.register("f", "a", request_id="r1")
    assert await scheduler.register("f", "a", request_id="r1") == first
    other = scheduler.register("f", "a", "b", request_id="r1")
    await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_a_chain_of_ten_thousand_nodes_registers_and_runs(scheduler: Client) -> None:
    names = [f"n{number}" for number in range(10_000)]
    edges = " ".join(f"{a}>{b}" for a, b in itertools.pairwise(names))
    flow = await scheduler.register("long", *names, edges=edges)
    assert flow.structure.components["0"].node_count == 10_000
    cycle = await scheduler.run("long", wait=30)
    assert cycle.counts.completed == 10_000
