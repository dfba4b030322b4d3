"""Flows built in Python."""

import copy
import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, cast

import pytest

from tests.arrays import Array
from tradewind.flow import Cache, Flow, FlowError, Handle, Node, Retry, Timeouts
from tradewind.worker import Gather, node


def edges(flow: Flow) -> list[str]:
    """Return the edges of a flow as `a.x > b.y`."""
    return [
        f"{edge['source']}.{edge['source_handle']} > {edge['target']}.{edge['target_handle']}"
        for edge in flow.to_weather()["edges"]
    ]


@pytest.fixture
def flow() -> Flow:
    """A flow with the nodes a, b and c."""
    flow = Flow("flow", 60)
    for node_id in "abc":
        flow.node(node_id, "noop")
    return flow


def test_example_of_specification_can_be_built() -> None:
    flow = Flow("spec", 60)
    price = flow.node("node_A", "binance_price_node", {"symbol": "BTCUSDT", "interval": "1m"})
    model = flow.node("node_B", "ai_model_node", {"model": "gpt-4"})
    price["kline_data"] >> model["price_input"]
    assert flow.to_weather() == {
        "interval": 60,
        "nodes": [
            {"id": "node_A", "type": "binance_price_node", "config": {"symbol": "BTCUSDT", "interval": "1m"}},
            {"id": "node_B", "type": "ai_model_node", "config": {"model": "gpt-4"}},
        ],
        "edges": [
            {"source": "node_A", "source_handle": "kline_data", "target": "node_B", "target_handle": "price_input"}
        ],
    }


def test_every_option_appears_in_weather_syntax() -> None:
    flow = Flow(
        "f",
        timedelta(milliseconds=1500),
        overlap="allow",
        failure_policy="fail_fast",
        timeout=timedelta(minutes=5),
        keep_cycles=7,
        keep_for=timedelta(hours=2),
        labels={"team": "research"},
        description="für alle",
    )
    flow.node(
        "a",
        "noop",
        run_if="all_done",
        schedule_to_start="30s",
        timeout=0.5,
        priority=2,
        concurrency={"key": "k", "max": 1},
        rate={"key": "k", "limit": "5/s"},
        cache=Cache("mine", scope="flow", ttl=timedelta(minutes=10)),
    )
    flow.node("d", "noop", cache="screening")
    flow.node("b", "noop", retry=Retry(3, timedelta(seconds=5), factor=1.5, non_retryable=["ValueError"]))
    flow.node("c", "noop", timeouts=Timeouts(total=timedelta(hours=1), heartbeat="30s"))
    assert flow.flow_id == "f"
    assert flow.to_weather() == {
        "interval": "1500ms",
        "overlap": "allow",
        "failure_policy": "fail_fast",
        "timeout": 300,
        "keep_cycles": 7,
        "keep_for": 7200,
        "labels": {"team": "research"},
        "description": "für alle",
        "nodes": [
            {
                "id": "a",
                "type": "noop",
                "run_if": "all_done",
                "schedule_to_start": "30s",
                "timeout": 0.5,
                "priority": 2,
                "concurrency": {"key": "k", "max": 1},
                "rate": {"key": "k", "limit": "5/s"},
                "cache": {"name": "mine", "scope": "flow", "ttl": 600},
            },
            {"id": "d", "type": "noop", "cache": {"name": "screening"}},
            {
                "id": "b",
                "type": "noop",
                "retry": {"attempts": 3, "initial": 5, "factor": 1.5, "non_retryable": ["ValueError"]},
            },
            {"id": "c", "type": "noop", "timeouts": {"total": 3600, "heartbeat": "30s"}},
        ],
        "edges": [],
    }


def test_omitted_options_are_left_to_server() -> None:
    assert Flow("f").to_weather() == {"nodes": [], "edges": []}
    assert Flow("f", 0).to_weather()["interval"] == 0
    assert Flow("f", "whenever").to_weather()["interval"] == "whenever"


def test_arrows_draw_edges(flow: Flow) -> None:
    a, b, c = flow.nodes
    assert isinstance(a, Node)
    assert isinstance(a["x"], Handle)
    assert (a["x"] >> b["y"]) is b
    assert a["x"] >> [b["z"], c["z"]] == (b, c)
    assert (a, b["x"]) >> c["all"] is c
    assert edges(flow) == ["a.x > b.y", "a.x > b.z", "a.x > c.z", "a.output > c.all", "b.x > c.all"]


def test_chained_arrows_continue_from_default_output(flow: Flow) -> None:
    a, b, c = flow.nodes
    a >> b["x"] >> c["y"]
    assert edges(flow) == ["a.output > b.x", "b.output > c.y"]


def test_edges_can_be_given_as_text(flow: Flow) -> None:
    assert flow.edge("a.x", "b.y").edge("b", "c.z") is flow
    assert edges(flow) == ["a.x > b.y", "b.output > c.z"]


def test_dotted_ids_and_handles_are_resolved_by_existing_nodes(flow: Flow) -> None:
    flow.node("a.b", "noop")
    with pytest.raises(
        FlowError, match=r'edges\[0\]\.source: "a.b.x" is ambiguous: it may be handle "b.x" of "a" or "x" of'
    ):
        flow.edge("a.b.x", "c.y")
    flow["a.b"]["x"] >> flow["c"]["y.z"]
    flow.edge("b.p.q", "c.y.z")
    assert edges(flow) == ["a.b.x > c.y.z", "b.p.q > c.y.z"]


def test_node_type_may_be_decorated_function() -> None:
    @node("moving_average")
    def moving_average(prices: list[float]) -> float:
        return sum(prices) / len(prices)

    assert Flow("f").node("fast", moving_average).type == "moving_average"


def test_nodes_are_found_by_id(flow: Flow) -> None:
    assert [each.id for each in flow.nodes] == ["a", "b", "c"]
    assert flow["b"].type == "noop"
    assert "b" in flow
    assert "d" not in flow
    flow.node("average", "noop")
    for mistyped in ("averge", "AVERAGE"):
        with pytest.raises(FlowError, match=f'no node "{mistyped}"; did you mean "average"\\?'):
            flow[mistyped]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("x.out", "b.in", r'edges\[0\]\.source: no node "x"; add it first'),
        ("a.out", "b", r'edges\[0\]\.target: which handle of "b"\? Write "b\.<handle>"'),
        ("a.out", "nowhere", r'edges\[0\]\.target: no node "nowhere"; add it first'),
        ("a.", "b.in", r"edges\[0\]\.source: "),
    ],
)
def test_edges_to_missing_nodes_or_handles_are_refused(flow: Flow, source: str, target: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        flow.edge(source, target)
    assert edges(flow) == []


def test_handle_written_as_attribute_gets_hint(flow: Flow) -> None:
    a: Any = flow["a"]
    with pytest.raises(AttributeError, match=r'no attribute "out"; if it is one of its handles, write a\["out"\]'):
        a.out >> flow["b"]["in"]
    assert not hasattr(a, "_repr_html_")
    assert copy.copy(a).id == "a"


def test_invalid_arrows_are_refused(flow: Flow) -> None:
    a, b, _ = flow.nodes
    arrow: Any = a
    with pytest.raises(FlowError, match=r'which handle of "b" receives'):
        arrow >> b
    with pytest.raises(FlowError, match=r'which handle of "b" receives\? Write \[...\] >> b\["<handle>"\]'):
        [arrow] >> b  # type: ignore[operator]
    with pytest.raises(FlowError, match=r'"a" is text: write flow\["a"\] >> b'):
        "a" >> b["x"]  # type: ignore[operator]
    with pytest.raises(FlowError, match=r'"b.prices" is text: write a\["output"\] >> flow'):
        arrow >> "b.prices"
    with pytest.raises(FlowError, match='node "z" belongs to another flow, not to "flow"'):
        a["x"] >> Flow("other").node("z", "noop")["y"]
    with pytest.raises(TypeError):
        list(arrow)
    with pytest.raises(TypeError):
        list(flow)  # type: ignore[call-overload]
    assert edges(flow) == []


def test_undecorated_function_is_refused_as_node_type(flow: Flow) -> None:
    undecorated: Any = len
    with pytest.raises(FlowError, match=r"nodes\[3\]\.type: <built-in function len> is not a node type: give its name"):
        flow.node("d", undecorated)
    assert "d" not in flow


def test_duplicate_node_id_is_refused(flow: Flow) -> None:
    with pytest.raises(FlowError, match=r'nodes\[3\]\.id: there is already a node "a"'):
        flow.node("a", "other")


def test_array_in_config_becomes_list(flow: Flow) -> None:
    flow.node("d", "model", {"weights": Array(1.0, 2.5)})
    assert flow.to_weather()["nodes"][3]["config"] == {"weights": [1.0, 2.5]}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"at": timedelta(1)}, r"nodes\[3\]\.config\.at: a timedelta is not a JSON value"),
        ({"on": date(2026, 1, 2)}, r'a date is not a JSON value; give its isoformat\(\), "2026-01-02"'),
        ({"a": [1, {"b": float("nan")}]}, r"nodes\[3\]\.config\.a\[1\]\.b: nan is not a JSON number"),
        ({1: 2}, r"nodes\[3\]\.config: the key 1 is not text"),
        ({"x": object()}, r"an object is not a JSON value"),
        ({"a": b"x"}, r"a bytes is not a JSON value"),
    ],
)
def test_config_that_is_not_json_is_refused(flow: Flow, config: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        flow.node("d", "noop", config)


def test_config_that_contains_itself_is_refused(flow: Flow) -> None:
    config: dict[str, Any] = {}
    config["self"] = config
    with pytest.raises(FlowError, match="nested more than 100 levels deep"):
        flow.node("d", "noop", config)


@pytest.mark.parametrize("value", [True, float("inf"), timedelta(microseconds=1), [1]])
def test_invalid_interval_is_refused(value: Any) -> None:
    with pytest.raises(FlowError, match="interval: "):
        Flow("f", value)


def test_configs_and_weather_syntax_are_copied(flow: Flow) -> None:
    config: dict[str, Any] = {"window": [1]}
    flow.node("d", "noop", config)
    config["window"].append(2)
    flow.to_weather()["nodes"][3]["config"]["window"].append(3)
    flow.to_weather()["nodes"].clear()
    assert flow.to_weather()["nodes"][3]["config"] == {"window": [1]}


def test_unknown_fields_survive_round_trip_through_flow() -> None:
    weather = {
        "interval": "5m",
        "unknown": [1],
        "nodes": [{"id": "a", "type": "noop", "more": 1}, {"no": "id"}, {"id": "a"}],
        "edges": [{"source": "nowhere"}],
    }
    flow = Flow.from_weather("f", weather)
    assert flow.to_weather() == weather
    assert flow["a"].type == "noop"
    flow.node("b", "noop")
    flow.edge("a.x", "b.y")
    assert len(flow.nodes) == 4
    assert len(weather["edges"]) == 1


@pytest.mark.parametrize(
    ("weather", "message"),
    [
        ([], "a flow is an object with interval, nodes and edges, not a list"),
        ({"nodes": {}}, "nodes: must be a list, is an object"),
        ({"nodes": [1]}, r"nodes\[0\]: must be an object, is a number"),
        ({"nodes": [], "edges": [{}, None]}, r"edges\[1\]: must be an object, is null"),
        ({"nodes": None}, "nodes: must be a list, is null"),
    ],
)
def test_weather_syntax_of_wrong_shape_is_refused(weather: Any, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        Flow.from_weather("f", weather)


def test_to_json_writes_text_with_optional_indent() -> None:
    flow = Flow("f", 1, description="für")
    assert flow.to_json() == '{"interval": 1, "description": "für", "nodes": [], "edges": []}'
    assert flow.to_json(indent=1).startswith('{\n "interval": 1,')


def test_node_with_map_has_fan_out_options() -> None:
    flow = Flow("f")
    flow.node("a", "t", map="in", max_parallel=4, min_success=0.9)
    flow.node("b", "t", map="in", min_success=1)
    # A float is a share; JSON could not tell the share 1.0 from one item.
    flow.node("c", "t", map="in", min_success=1.0)
    assert flow.to_weather()["nodes"] == [
        {"id": "a", "type": "t", "map": "in", "max_parallel": 4, "min_success": 0.9},
        {"id": "b", "type": "t", "map": "in", "min_success": 1},
        {"id": "c", "type": "t", "map": "in"},
    ]
    for share in (0.0, 1.01):
        with pytest.raises(FlowError, match=rf"nodes\[3\].min_success: a share must be above 0 and .*, is {share}"):
            flow.node("d", "t", map="in", min_success=share)


def test_option_of_wrong_type_is_refused() -> None:
    flow, other = Flow("f"), Flow("other")
    with pytest.raises(FlowError, match=r"^nodes\[0\]\.retry: must be a Retry, such as Retry\(3\), is a number$"):
        flow.node("a", "t", retry=3)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r"^nodes\[0\]\.timeouts: must be a Timeouts, such as .*, is text$"):
        flow.node("a", "t", timeouts="5m")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r"^nodes\[0\]\.cache: must be a Cache, such as .*, is an object$"):
        flow.node("a", "t", cache={"name": "prices"})  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r'^on_failure: "a" is text: write flow\["a"\]$'):
        flow.on_failure("a")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r'^finally: node "b" belongs to another flow, not to "f"$'):
        flow.finally_(other.node("b", "t"))
    assert flow.to_weather() == {"nodes": [], "edges": []}


@pytest.mark.parametrize(("given", "kind"), [("a", "text"), (None, "null"), ({}, "an object")])
def test_handlers_of_outcome_that_were_read_and_are_no_list_are_refused(given: Any, kind: str) -> None:
    flow = Flow.from_weather("f", {"nodes": [{"id": "a", "type": "t"}], "finally": given})

    with pytest.raises(FlowError, match=f"^finally: must be a list of texts, is {kind}$"):
        flow.finally_(flow["a"])


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        (
            {"cron": "30 9 * * *"},
            'no argument "cron": it goes into the schedule, schedule={"cron": \'30 9 * * *\'}',
        ),
        ({"event": {"name": "price"}}, "it goes into the schedule, schedule={\"event\": {'name': 'price'}}"),
        ({"time_out": 5}, 'Flow has no argument "time_out"; did you mean "timeout"?'),
        ({"xyz": 5}, 'Flow has no argument "xyz"'),
    ],
)
def test_unknown_argument_of_flow_gets_hint(argument: dict[str, Any], hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        Flow("f", **argument)
    assert hint in str(refused.value)


def test_joining_and_running_what_is_no_text_and_no_flow_is_refused() -> None:
    flow = Flow("f")
    feed, wrong = flow.node("feed", "price_feed"), cast(Any, 3)

    with pytest.raises(FlowError, match=r'^edges\[0\]\.source: must be text, such as "feed.prices"; <node feed: '):
        flow.edge(cast(Any, feed), "feed.prices")
    with pytest.raises(
        FlowError, match=r"^nodes\[1\]\.config\.flow_id: must be a Flow, or the id of one, is a number$"
    ):
        flow.sub_flow("later", wrong)


@node("two_lists", outputs=["quotes", "symbols"])
def two_lists() -> None: ...


@node("decide")
def decide(quotes: Gather[float], limit: int = 1) -> int:
    return len(quotes) * limit


@node("configured")
def configured(config: dict[str, Any], quotes: float = 0.0) -> float:
    return quotes


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda a, b: a["quots"] >> b["quotes"],
            'edges[0].source_handle: node type "two_lists" has no output handle "quots"; did you mean "quotes"?',
        ),
        (
            lambda a, b: a >> b["quotes"],
            'edges[0].source_handle: node type "two_lists" has no output handle "output"; it has "quotes", "symbols"',
        ),
        (
            lambda a, b: a["quotes"] >> b["quots"],
            'edges[0].target_handle: node type "decide" has no input handle "quots"; did you mean "quotes"?',
        ),
        (
            lambda a, b: b["errors"] >> b["quotes"],
            'edges[0].source_handle: node type "decide" has no output handle "errors"; it has "output"',
        ),
    ],
)
def test_unknown_handle_of_a_function_is_refused_at_once(build: Callable[[Node, Node], object], message: str) -> None:
    flow = Flow("f", 60)
    a, b = flow.node("a", two_lists), flow.node("b", decide)
    with pytest.raises(FlowError, match=f"^{re.escape(message)}$"):
        build(a, b)
    assert edges(flow) == []


def test_unknown_config_key_of_a_function_is_refused_at_once() -> None:
    flow = Flow("f", 60)
    message = r'^nodes\[0\]\.config\.limitt: unknown key; did you mean "limit"\?$'
    with pytest.raises(FlowError, match=message):
        flow.node("a", decide, {"limitt": 3})
    assert flow.nodes == ()


def test_what_a_function_declares_is_accepted() -> None:
    flow = Flow("f", 60)
    a, b = flow.node("a", two_lists), flow.node("b", decide, {"limit": 2})
    each = flow.node("c", configured, {"anything": 1}, map="quotes")
    a["quotes"] >> [b["quotes"], each["quotes"]]
    a["symbols"] >> b["quotes"]
    each["errors"] >> b["quotes"]
    flow.node("d", "two_lists")["whatever"] >> b["quotes"]
    assert len(edges(flow)) == 5
