"""Reading and writing Weather Syntax."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.flows import Weather, analyzed, edge, flow, node
from tradewind.scheduler.domain.cache_definition import CacheDefinition, CacheScope
from tradewind.scheduler.domain.concurrency import Concurrency, WhenFull
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.flow_analysis import analyze
from tradewind.scheduler.domain.flow_definition import FlowDefinition, OverlapPolicy
from tradewind.scheduler.domain.json_text import UNREADABLE, canonical_json, read_json_text
from tradewind.scheduler.domain.json_values import exact_value
from tradewind.scheduler.domain.key_rate import KeyRate
from tradewind.scheduler.domain.node_definition import EdgeDefinition, NodeDefinition, RunIf
from tradewind.scheduler.domain.retry_definition import RetryDefinition
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.domain.weather import definition_from_json, read_weather, read_weather_json

SPECIFICATION: Weather = {
    "interval": 60,
    "nodes": [
        {"id": "node_A", "type": "binance_price_node", "config": {"symbol": "BTCUSDT", "interval": "1m"}},
        {"id": "node_B", "type": "ai_model_node", "config": {"model": "gpt-4"}},
    ],
    "edges": [
        {"source": "node_A", "source_handle": "kline_data", "target": "node_B", "target_handle": "price_input"},
    ],
}


def definition_of(weather: object, *, from_struct: bool = False) -> FlowDefinition:
    found = analyzed(weather, from_struct=from_struct)
    assert found.violations == ()
    assert found.definition is not None
    return found.definition


def test_example_of_the_specification_is_read() -> None:
    definition = definition_of(SPECIFICATION)
    assert definition == FlowDefinition(
        schedule=ScheduleDefinition(60_000),
        nodes=(
            NodeDefinition("node_A", "binance_price_node", '{"interval":"1m","symbol":"BTCUSDT"}'),
            NodeDefinition("node_B", "ai_model_node", '{"model":"gpt-4"}'),
        ),
        edges=(EdgeDefinition("node_A", "kline_data", "node_B", "price_input"),),
    )
    assert json.loads(definition.to_json()) == SPECIFICATION


def test_omitted_fields_have_defaults() -> None:
    definition = definition_of({"interval": 0, "nodes": [{"id": "a", "type": "t"}]})
    assert definition.schedule.once
    assert definition.edges == ()
    assert definition.overlap is OverlapPolicy.SKIP
    assert definition.failure_policy is FailurePolicy.SKIP_DOWNSTREAM
    assert definition.cycle_timeout_ms is None
    assert definition.keep_cycles == 100
    assert definition.labels == ()
    assert definition.description == ""
    only = definition.nodes[0]
    assert (only.config_json, only.run_if) == ("{}", RunIf.ALL_SUCCEEDED)
    assert (only.schedule_to_start_ms, only.start_to_close_ms) == (300_000, 300_000)


def test_every_field_is_read_and_written() -> None:
    weather = {
        "interval": "500ms",
        "overlap": "allow",
        "failure_policy": "fail_fast",
        "timeout": "1h",
        "keep_cycles": 7.0,
        "max_running": 9,
        "labels": {"team": "rates", "env": "test"},
        "description": "Prices, every half second",
        "nodes": [
            node("a", config={"window": 20.0, "rate": 0.5}, schedule_to_start="30s"),
            node("b", run_if="any_succeeded", timeout=0),
            node("c", run_if="all_done", timeout="1m", priority=-5),
            node("d", concurrency={"key": "acct-7", "max": 1, "when_full": "drop_new"}),
            node("r", rate={"key": "acct-7", "limit": "100/m", "cost": 2}),
            node("e", cache="screening"),
            node("g", cache={"name": "mine", "key": "k", "scope": "flow", "ttl": "10m"}),
        ],
        "edges": [edge("a", "b"), edge("a", "c")],
    }
    definition = definition_of(weather)
    assert definition.schedule == ScheduleDefinition(500)
    assert definition.overlap is OverlapPolicy.ALLOW
    assert definition.failure_policy is FailurePolicy.FAIL_FAST
    assert definition.cycle_timeout_ms == 3_600_000
    assert definition.keep_cycles == 7
    assert definition.max_running == 9
    assert definition.labels == (("env", "test"), ("team", "rates"))
    assert definition.description == "Prices, every half second"
    assert definition.nodes == (
        NodeDefinition("a", "feed", '{"rate":0.5,"window":20}', schedule_to_start_ms=30_000),
        NodeDefinition("b", "feed", run_if=RunIf.ANY_SUCCEEDED, start_to_close_ms=0),
        NodeDefinition("c", "feed", run_if=RunIf.ALL_DONE, start_to_close_ms=60_000, priority=-5),
        NodeDefinition("d", "feed", concurrency=Concurrency("acct-7", 1, WhenFull.DROP_NEW)),
        NodeDefinition("r", "feed", rate=KeyRate("acct-7", "100/m", 2)),
        NodeDefinition("e", "feed", cache=CacheDefinition("screening")),
        NodeDefinition("g", "feed", cache=CacheDefinition("mine", "k", CacheScope.FLOW, 600_000)),
    )
    assert json.loads(definition.to_json()) == {
        **weather,
        "timeout": 3600,
        "nodes": [
            node("a", config={"window": 20, "rate": 0.5}, schedule_to_start=30),
            node("b", run_if="any_succeeded", timeout=0),
            node("c", run_if="all_done", timeout=60, priority=-5),
            node("d", concurrency={"key": "acct-7", "max": 1, "when_full": "drop_new"}),
            node("r", rate={"key": "acct-7", "limit": "100/m", "cost": 2}),
            node("e", cache={"name": "screening"}),
            node("g", cache={"name": "mine", "key": "k", "scope": "flow", "ttl": 600}),
        ],
    }


def test_timeouts_may_be_given_in_one_object() -> None:
    together = {"schedule_to_start": "30s", "start_to_close": 0, "total": "1h", "heartbeat": "1500ms"}
    definition = definition_of(flow(nodes=[node("a", timeouts=together)], edges=[]))
    assert definition.nodes == (
        NodeDefinition(
            "a", "feed", schedule_to_start_ms=30_000, start_to_close_ms=0, total_ms=3_600_000, heartbeat_ms=1_500
        ),
    )
    assert json.loads(definition.to_json())["nodes"] == [
        node("a", schedule_to_start=30, timeout=0, timeouts={"total": 3600, "heartbeat": "1500ms"})
    ]


def test_omitted_retry_fields_have_defaults() -> None:
    said = {"attempts": 5, "initial": "90s", "factor": 1.5, "jitter": 0, "non_retryable": ["ValueError"]}
    definition = definition_of(
        flow(nodes=[node("a", retry={"attempts": 3, "factor": 2.0, "maximum": 60}), node("b", retry=said)], edges=[])
    )
    assert definition.nodes[0].retry == RetryDefinition(3, 1_000, 2.0, 60_000, 0.1, ())
    assert definition.nodes[1].retry == RetryDefinition(5, 90_000, 1.5, 90_000, 0.0, ("ValueError",))
    assert [item.get("retry") for item in json.loads(definition.to_json())["nodes"]] == [
        {"attempts": 3},
        {**said, "initial": 90},
    ]


def test_null_means_absent() -> None:
    nulls = {"edges": None, "overlap": None, "timeout": None, "keep_cycles": None, "labels": None, "description": None}
    bare = node("a", config=None, run_if=None, schedule_to_start=None, timeout=None, retry=None)
    assert definition_of({"interval": 1, "nodes": [bare], **nulls}) == FlowDefinition(
        ScheduleDefinition(1000), (NodeDefinition("a", "feed"),)
    )


@pytest.mark.parametrize("timeout", [0, "0", None])
def test_zero_cycle_timeout_means_none(timeout: object) -> None:
    assert definition_of(flow(timeout=timeout)).cycle_timeout_ms is None


def test_equal_definitions_have_the_same_text_from_any_source() -> None:
    plain = definition_of(SPECIFICATION)
    through_struct = definition_of(as_doubles(SPECIFICATION), from_struct=True)
    other_order = json.dumps({key: SPECIFICATION[key] for key in reversed(SPECIFICATION)}, indent=4)
    through_text = analyze(read_weather_json(other_order)).definition
    as_text = definition_of({**SPECIFICATION, "interval": "1m", "keep_cycles": 100})
    assert plain == through_struct == through_text == as_text
    assert plain.to_json() == as_text.to_json()
    assert plain.to_json() != definition_of({**SPECIFICATION, "interval": 61}).to_json()


def test_text_is_canonical() -> None:
    definition = definition_of({"interval": "1m", "nodes": [node("a", config={"z": "ä", "b": 2.0})], "edges": []})
    text = '{"edges":[],"interval":60,"nodes":[{"config":{"b":2,"z":"ä"},"id":"a","type":"feed"}]}'
    assert definition.to_json() == text


def test_draft_lists_its_node_types() -> None:
    draft = read_weather({"nodes": [node("a", "x"), node("b", "y"), node("c", "x"), {"id": "d"}, 7]})
    assert draft.node_types == {"x", "y"}


def test_earlier_faults_come_first() -> None:
    earlier = FaultList()
    assert read_json_text("{", "nodes[0].config_json", earlier) is UNREADABLE
    found = analyze(read_weather(flow(interval=-1), earlier=earlier))
    assert [violation.path for violation in found.violations] == ["nodes[0].config_json", "interval"]
    assert len(earlier) == 1


def test_stored_definition_reads_back_and_other_text_is_refused() -> None:
    definition = definition_of(flow(labels={"a": "b"}, description="ä"))
    assert definition_from_json(definition.to_json()) == definition
    with pytest.raises(ValueError, match="not a stored flow definition: interval: is required"):
        definition_from_json("{}")


identifiers = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,9}\Z")
durations = st.integers(0, 10**12)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53) + 1, 2**53 - 1),
        st.floats(allow_nan=False, allow_infinity=False, max_value=1e15, min_value=-1e15),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


retries = st.fixed_dictionaries(
    {"attempts": st.integers(1, 1000)},
    optional={
        "initial": st.integers(0, 3600),
        "maximum": st.integers(3600, 10**6),
        "factor": st.one_of(st.integers(1, 1000), st.sampled_from([1.5, 2.25])),
        "jitter": st.sampled_from([0, 0.25, 1]),
        "non_retryable": st.lists(identifiers, max_size=3),
    },
)


intervals = st.one_of(st.integers(0, 10**8), st.sampled_from(["5s", "0.25", 0.125]))
schedules = st.fixed_dictionaries(
    {"interval": intervals},
    optional={
        "start": st.sampled_from(["2030-03-17T18:00:00Z", "2030-03-17T19:00:00.250+01:00"]),
        "max_cycles": st.integers(1, 10**9),
        "catch_up": st.sampled_from(["none", "latest", "all"]),
        "catch_up_window": st.sampled_from(["1h", "90s"]),
    },
)


@st.composite
def weathers(draw: st.DrawFn) -> Weather:
    """Draw flows without faults, in which every field may or may not be present."""
    ids = draw(st.lists(identifiers, min_size=1, max_size=6, unique=True))
    optional: dict[str, Any] = {
        "config": st.dictionaries(texts, json_values, max_size=3),
        "run_if": st.sampled_from(list(RunIf)).map(str),
        "schedule_to_start": durations.map(lambda ms: f"{ms + 1}ms").filter(lambda text: int(text[:-2]) < 10**11),
        "timeout": durations.filter(lambda ms: ms < 10**11).map(lambda ms: f"{ms}ms"),
        "retry": retries,
        "timeouts": st.fixed_dictionaries(
            {}, optional={"total": st.integers(0, 10**6), "heartbeat": st.sampled_from([0, 1, "90s"])}
        ),
    }
    nodes = [
        {"id": node_id, "type": draw(identifiers), **draw(st.fixed_dictionaries({}, optional=optional))}
        for node_id in ids
    ]
    pairs = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    ends = draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    edges = [edge(a, b, draw(identifiers), draw(identifiers)) for a, b in ends]
    times = draw(
        st.one_of(intervals.map(lambda each: {"interval": each}), schedules.map(lambda each: {"schedule": each}))
    )
    rest = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "overlap": st.sampled_from(list(OverlapPolicy)).map(str),
                "failure_policy": st.sampled_from(list(FailurePolicy)).map(str),
                "timeout": st.integers(0, 10**8),
                "keep_cycles": st.integers(1, 10_000),
                "labels": st.dictionaries(identifiers, texts, max_size=4),
                "description": texts,
            },
        )
    )
    return {**times, **rest, "nodes": nodes, "edges": edges}


@given(weathers())
def test_definition_round_trips_through_every_format(weather: Weather) -> None:
    definition = definition_of(weather)
    assert definition_of(as_doubles(weather), from_struct=True) == definition
    assert definition_from_json(definition.to_json()) == definition
    assert definition_from_json(definition.to_json()).to_json() == definition.to_json()
    assert definition.to_json() == canonical_json(json.loads(definition.to_json()))
    assert read_weather(weather).size == len(canonical_json(exact_value(weather, FaultList())).encode())
    assert analyze(read_weather_json(json.dumps(weather))).definition == definition


garbage = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.text(max_size=3),
                st.sampled_from(["interval", "nodes", "edges", "id", "type", "config", "source", "target", "labels"]),
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=30,
)


@given(garbage, st.booleans())
def test_garbage_is_refused_with_encodable_faults(weather: Any, from_struct: bool) -> None:
    found = analyzed(weather, from_struct=from_struct)
    assert found.violations or found.definition is not None
    for violation in found.violations:
        assert violation.path
        assert violation.message
        (violation.path + violation.message).encode()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    read_weather_json(text)


def as_doubles(value: Any) -> Any:
    """Return a value as a Struct delivers it, with every number a double."""
    if isinstance(value, dict):
        return {key: as_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "cancel_running"])
def test_catching_up_with_all_times_under_an_overlap_that_drops_some_is_a_warning(overlap: str) -> None:
    weather = flow(schedule={"interval": "1m", "catch_up": "all"}, overlap=overlap)
    del weather["interval"]
    (warning,) = analyzed(weather).warnings
    assert warning.path == "schedule.catch_up"
    assert f'overlap "{overlap}" does not begin a cycle for each while another runs' in warning.message
    assert not analyzed(weather | {"overlap": "queue_all"}).warnings
    assert not analyzed(weather | {"overlap": "allow"}).warnings
    assert not analyzed(weather | {"schedule": {"interval": "1m"}}).warnings
