"""Weather Syntax and the typed message of the contract say the same."""

from typing import Any

import pytest

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.flow import FlowError, spec_of, weather_of

LONE = "\ud800"
"""What JSON can write as an escape and no text may have: the first half of a character without the second."""

WEATHER = {
    "interval": "5m",
    "nodes": [
        {
            "id": "a",
            "type": "feed",
            "config": {"symbol": "ÄÖ", "key": {"$secret": "k"}},
            "run_if": "any_succeeded",
            "schedule_to_start": "30s",
            "priority": -3,
            "concurrency": {"key": "acct-7", "max": 1, "when_full": "keep_newest"},
            "rate": {"key": "acct-7", "limit": "100/m", "cost": 2},
            "cache": {"name": "screening", "key": "k", "scope": "global", "ttl": "10m"},
            "timeout": "0",
            "timeouts": {"total": "1h", "heartbeat": "30"},
            "retry": {
                "attempts": 3,
                "initial": "5s",
                "factor": 1.5,
                "maximum": "1m",
                "jitter": 0.0,
                "non_retryable": ["ValueError"],
            },
        },
        {"id": "b", "type": "report"},
        {"id": "c", "type": "each", "map": "x", "max_parallel": 4, "min_success": 0.9},
        {"id": "d", "type": "each", "map": "x", "min_success": 0},
    ],
    "edges": [{"source": "a", "source_handle": "prices", "target": "b", "target_handle": "x"}],
    "overlap": "allow",
    "failure_policy": "continue",
    "timeout": "1h",
    "keep_cycles": 7,
    "keep_for": "2d",
    "max_running": 20,
    "pause_after_failures": 3,
    "on_failure": ["c"],
    "finally": ["d"],
    "labels": {"team": "research"},
    "description": "für alle",
}


def test_flow_survives_round_trip_through_spec() -> None:
    spec = spec_of(WEATHER)
    assert spec.nodes[0].config_json == '{"symbol":"ÄÖ","key":{"$secret":"k"}}'
    assert spec.nodes[0].run_if == node_task_pb2.RUN_IF_ANY_SUCCEEDED
    assert (spec.overlap, spec.failure_policy) == (
        flow_pb2.OVERLAP_POLICY_ALLOW,
        node_task_pb2.FAILURE_POLICY_CONTINUE,
    )
    assert weather_of(spec) == WEATHER
    assert spec_of(weather_of(spec)) == spec


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "30 9 * * 1-5", "zone": "UTC", "catch_up": "none", "max_cycles": 3},
        {"at": ["2030-01-01T00:00:00Z"], "jitter": "5s"},
        {"event": {"name": "price"}, "start": "2030-01-01T00:00:00Z"},
        {"event": {"name": "price", "filter": {"symbol": "ÄÖ", "order.price": {"$gt": 1.5}}}},
        {"flow_finished": {"flow_ids": ["a", "b"], "statuses": ["failed"]}},
        {"flow_finished": {"flow_ids": ["a"]}},
        {"flow_finished": {}},
    ],
)
def test_schedule_survives_round_trip_through_spec(schedule: dict[str, Any]) -> None:
    weather = {"schedule": schedule, "nodes": [], "edges": []}
    assert weather_of(spec_of(weather)) == weather


def test_schedule_of_a_single_time_may_be_text() -> None:
    time = "2030-01-01T00:00:00Z"
    assert spec_of({"schedule": {"at": time}}) == spec_of({"schedule": {"at": [time]}})


def test_omitted_fields_stay_unset() -> None:
    assert spec_of({}) == flow_pb2.FlowSpec()
    assert weather_of(flow_pb2.FlowSpec()) == {"nodes": [], "edges": []}


@pytest.mark.parametrize("field", ["concurrency", "rate", "cache", "timeouts", "retry"])
def test_null_rule_of_a_node_is_left_out_as_servers_do(field: str) -> None:
    assert spec_of({"nodes": [{"id": "a", "type": "t", field: None}]}) == spec_of({"nodes": [{"id": "a", "type": "t"}]})


@pytest.mark.parametrize(
    ("interval", "text"), [(0, "0"), (60, "60"), (0.5, "0.5"), (1e-7, "0.0000001"), ("whenever", "whenever")]
)
def test_numeric_intervals_become_text(interval: Any, text: str) -> None:
    assert spec_of({"interval": interval}).interval == text


@pytest.mark.parametrize(
    ("weather", "message"),
    [
        ([], "must be an object, is a list"),
        ({"colour": "red"}, "colour: unknown field; known fields are interval, schedule, nodes"),
        ({"schedules": "daily"}, 'schedules: unknown field; did you mean "schedule"\\?'),
        ({"schedule": "0 * * * *"}, r'schedule: must be an object, such as {"cron": "0 \* \* \* \*"}, is text'),
        ({"schedule": 5}, "schedule: must be an object, is a number"),
        ({"schedule": {"at": 5}}, "schedule.at: must be a list of texts"),
        ({"schedule": {"event": "price"}}, "schedule.event: must be an object, is text"),
        ({"schedule": {"event": {"names": "a"}}}, 'schedule.event.names: unknown field; did you mean "name"'),
        (
            {"schedule": {"flow_finished": {"flow_ids": "a"}}},
            "schedule.flow_finished.flow_ids: must be a list of texts",
        ),
        ({"interval": True}, "interval: must be a number of seconds or text, is true"),
        ({"timeout": [5]}, "timeout: must be a number of seconds or text, is a list"),
        ({"keep_cycles": "7"}, "keep_cycles: must be a whole number, is text"),
        ({"keep_cycles": True}, "keep_cycles: must be a whole number, is true"),
        ({"on_failure": ["a", 1]}, "on_failure: must be a list of texts"),
        ({"nodes": [{"min_success": "most"}]}, r"nodes\[0\]\.min_success: must be a number, is text"),
        ({"nodes": [{"min_success": True}]}, r"nodes\[0\]\.min_success: must be a number, is true"),
        ({"keep_cycles": 2**31}, "keep_cycles: must be from -2147483648 to 2147483647"),
        ({"nodes": [{"min_success": 10**400}]}, r"nodes\[0\]\.min_success: is too large"),
        ({"nodes": [{"min_success": 1e300}]}, r"nodes\[0\]\.min_success: must be from -2147483648 to 2147483647"),
        ({"nodes": [{"retry": {"factor": 10**400}}]}, r"nodes\[0\]\.retry\.factor: is too large"),
        ({"nodes": [{"retry": {"jitter": -(10**400)}}]}, r"nodes\[0\]\.retry\.jitter: is too large"),
        (
            {"overlap": "sometimes"},
            'overlap: "sometimes" is not one of skip, allow, queue_one, queue_all, cancel_running',
        ),
        ({"labels": ["a"]}, "labels: must be an object of texts"),
        ({"labels": {"a": 1}}, "labels: must be an object of texts"),
        ({"labels": {1: "a"}}, "labels: must be an object of texts"),
        ({"nodes": {}}, "nodes: must be a list, is an object"),
        ({"nodes": [{}, None]}, r"nodes\[1\]: must be an object, is null"),
        ({"nodes": [{"id": 1}]}, r"nodes\[0\]\.id: must be text, is a number"),
        ({"nodes": [{"config": {"a": float("nan")}}]}, r"nodes\[0\]\.config\.a: nan is not a JSON number"),
        ({"nodes": [{"run_if": "never"}]}, r'nodes\[0\]\.run_if: "never" is not one of all_succeeded'),
        ({"edges": [{"from": "a"}]}, r"edges\[0\]\.from: unknown field"),
    ],
)
def test_weather_syntax_that_does_not_fit_spec_is_refused(weather: Any, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        spec_of(weather)


@pytest.mark.parametrize(
    ("weather", "path"),
    [
        ({"description": LONE}, "description"),
        ({"interval": LONE}, "interval"),
        ({"labels": {"a": LONE}}, "labels.a"),
        ({"labels": {LONE: "a"}}, "labels"),
        ({"finally": ["a", LONE]}, "finally[1]"),
        ({"schedule": {"event": {"filter": {"symbol": LONE}}}}, "schedule.event.filter.symbol"),
        ({"nodes": [{"id": LONE}]}, "nodes[0].id"),
        ({"nodes": [{"config": {"a": [LONE]}}]}, "nodes[0].config.a[0]"),
        ({"nodes": [{"config": {LONE: 1}}]}, "nodes[0].config"),
    ],
)
def test_lone_surrogate_is_refused_with_its_path(weather: dict[str, Any], path: str) -> None:
    with pytest.raises(FlowError, match=r"has '\\ud800', half a character: write the whole one") as caught:
        spec_of(weather)
    assert caught.value.path == path


def test_spec_that_does_not_fit_weather_syntax_is_refused() -> None:
    with pytest.raises(FlowError, match=r"nodes\[0\]\.config_json: is not JSON"):
        weather_of(flow_pb2.FlowSpec(nodes=[flow_pb2.NodeSpec(config_json="{")]))
    unknown = flow_pb2.FlowSpec()
    unknown.ParseFromString(b"\x20\x63")
    with pytest.raises(FlowError, match="overlap: 99 is not a known value; use one of skip, allow"):
        weather_of(unknown)
