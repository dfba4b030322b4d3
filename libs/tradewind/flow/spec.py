"""Weather Syntax to the typed `FlowSpec` of the contract, and back."""

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.flow.cache import SCOPES
from tradewind.flow.errors import FlowError
from tradewind.flow.fields import Fields, add_enum_word
from tradewind.flow.schedule_spec import schedule_spec_of, schedule_weather

_RUN_IF: dict[str, node_task_pb2.RunIf.ValueType] = {
    "all_succeeded": node_task_pb2.RUN_IF_ALL_SUCCEEDED,
    "any_succeeded": node_task_pb2.RUN_IF_ANY_SUCCEEDED,
    "all_done": node_task_pb2.RUN_IF_ALL_DONE,
}
_OVERLAP: dict[str, flow_pb2.OverlapPolicy.ValueType] = {
    "skip": flow_pb2.OVERLAP_POLICY_SKIP,
    "allow": flow_pb2.OVERLAP_POLICY_ALLOW,
    "queue_one": flow_pb2.OVERLAP_POLICY_QUEUE_ONE,
    "queue_all": flow_pb2.OVERLAP_POLICY_QUEUE_ALL,
    "cancel_running": flow_pb2.OVERLAP_POLICY_CANCEL_RUNNING,
}
_FAILURE_POLICY: dict[str, node_task_pb2.FailurePolicy.ValueType] = {
    "skip_downstream": node_task_pb2.FAILURE_POLICY_SKIP_DOWNSTREAM,
    "fail_fast": node_task_pb2.FAILURE_POLICY_FAIL_FAST,
    "continue": node_task_pb2.FAILURE_POLICY_CONTINUE,
}
_WHEN_FULL: dict[str, node_task_pb2.WhenFull.ValueType] = {
    "wait": node_task_pb2.WHEN_FULL_WAIT,
    "drop_new": node_task_pb2.WHEN_FULL_DROP_NEW,
    "cancel_oldest": node_task_pb2.WHEN_FULL_CANCEL_OLDEST,
    "keep_newest": node_task_pb2.WHEN_FULL_KEEP_NEWEST,
}
_EDGE_FIELDS = ("source", "source_handle", "target", "target_handle")
_NODE_FIELDS = (
    *("id", "type", "config", "run_if", "schedule_to_start", "timeout", "timeouts", "priority", "retry"),
    *("concurrency", "rate", "cache", "map", "max_parallel", "min_success"),
)
_TIMEOUT_FIELDS = ("schedule_to_start", "start_to_close", "total", "heartbeat")
_RETRY_FIELDS = ("attempts", "initial", "factor", "maximum", "jitter", "non_retryable")
_RATE_FIELDS = ("key", "limit", "cost")
_CACHE_FIELDS = ("name", "key", "scope", "ttl")
_CONCURRENCY_FIELDS = ("key", "max", "when_full")
_FLOW_FIELDS = (
    "interval",
    "schedule",
    "nodes",
    "edges",
    "overlap",
    "failure_policy",
    "timeout",
    "keep_cycles",
    "keep_for",
    "max_running",
    "pause_after_failures",
    "on_failure",
    "finally",
    "labels",
    "description",
)
Object: TypeAlias = Mapping[str, Any]


def spec_of(weather: Object, *, without: Collection[str] = ()) -> flow_pb2.FlowSpec:
    """Return a flow in Weather Syntax as a typed message; fields in `without` are not known here.

    Raises FlowError, with its path, for the first thing that the message cannot hold: an unknown field or word, or a
    value of the wrong type. Whether the flow makes sense is for the server to say.
    """
    fields = Fields(weather, "", tuple(name for name in _FLOW_FIELDS if name not in without))
    spec = flow_pb2.FlowSpec(
        interval=fields.duration("interval"),
        nodes=[_node(item, path) for path, item in fields.items("nodes")],
        edges=[_edge(item, path) for path, item in fields.items("edges")],
        timeout=fields.duration("timeout"),
        keep_cycles=fields.integer("keep_cycles"),
        keep_for=fields.duration("keep_for"),
        max_running=fields.integer("max_running"),
        pause_after_failures=fields.integer("pause_after_failures"),
        labels=fields.labels(),
        description=fields.text("description"),
        on_failure=fields.texts("on_failure"),
        finally_nodes=fields.texts("finally"),
    )
    if overlap := fields.word("overlap", _OVERLAP):
        spec.overlap = overlap
    if failure_policy := fields.word("failure_policy", _FAILURE_POLICY):
        spec.failure_policy = failure_policy
    if (schedule := weather.get("schedule")) is not None:
        if isinstance(schedule, str):
            raise FlowError('must be an object, such as {"cron": "0 * * * *"}, is text', "schedule")
        spec.schedule.CopyFrom(schedule_spec_of(fields.object("schedule"), "schedule"))
    return spec


def weather_of(spec: flow_pb2.FlowSpec) -> dict[str, Any]:
    """Return a typed message in Weather Syntax, without fields at their defaults.

    Raises FlowError, with its path, for a config that is not JSON and for an enum value without a word.
    """
    weather: dict[str, Any] = {"interval": spec.interval} if spec.interval else {}
    if spec.HasField("schedule"):
        weather["schedule"] = schedule_weather(spec.schedule, "schedule")
    weather["nodes"] = [_node_weather(node, f"nodes[{place}]") for place, node in enumerate(spec.nodes)]
    weather["edges"] = [{name: getattr(edge, name) for name in _EDGE_FIELDS} for edge in spec.edges]
    add_enum_word(weather, "overlap", spec.overlap, _OVERLAP, "")
    add_enum_word(weather, "failure_policy", spec.failure_policy, _FAILURE_POLICY, "")
    weather |= {
        name: value
        for name in ("timeout", "keep_cycles", "keep_for", "max_running", "pause_after_failures", "description")
        if (value := getattr(spec, name))
    }
    for name, ids in (("on_failure", spec.on_failure), ("finally", spec.finally_nodes)):
        if ids:
            weather[name] = list(ids)
    if spec.labels:
        weather["labels"] = dict(spec.labels)
    return weather


def _node(item: Object, path: str) -> flow_pb2.NodeSpec:
    fields = Fields(item, path, _NODE_FIELDS)
    node = flow_pb2.NodeSpec(
        id=fields.text("id"),
        type=fields.text("type"),
        config_json=fields.json("config"),
        schedule_to_start=fields.duration("schedule_to_start"),
        timeout=fields.duration("timeout"),
        priority=fields.integer("priority"),
        map=fields.text("map"),
        max_parallel=fields.integer("max_parallel"),
    )
    match fields.share_or_count("min_success"):
        case int(count):
            node.min_success_count = count
        case float(share):
            node.min_success_ratio = share
    if run_if := fields.word("run_if", _RUN_IF):
        node.run_if = run_if
    if item.get("concurrency") is not None:
        node.concurrency.CopyFrom(concurrency_of(item["concurrency"], f"{path}.concurrency"))
    if item.get("rate") is not None:
        node.rate.CopyFrom(key_rate_of(item["rate"], f"{path}.rate"))
    if item.get("cache") is not None:
        named = {"name": item["cache"]} if isinstance(item["cache"], str) else item["cache"]
        cache = Fields(named, fields.at("cache"), _CACHE_FIELDS)
        node.cache.CopyFrom(
            flow_pb2.CacheSpec(
                name=cache.text("name"),
                key=cache.text("key"),
                scope=cache.word("scope", SCOPES),
                ttl=cache.duration("ttl"),
            )
        )
    if item.get("timeouts") is not None:
        clocks = Fields(item["timeouts"], fields.at("timeouts"), _TIMEOUT_FIELDS)
        node.timeouts.CopyFrom(flow_pb2.TimeoutsSpec(**{name: clocks.duration(name) for name in _TIMEOUT_FIELDS}))
    if item.get("retry") is not None:
        node.retry.CopyFrom(_retry(item["retry"], fields.at("retry")))
    return node


def concurrency_of(item: Object, path: str = "concurrency") -> node_task_pb2.Concurrency:
    """Return `{"key": ..., "max": ..., "when_full": ...}` as a message. Raises FlowError."""
    fields = Fields(item, path, _CONCURRENCY_FIELDS)
    message = node_task_pb2.Concurrency(key=fields.text("key"), max=fields.integer("max"))
    if when_full := fields.word("when_full", _WHEN_FULL):
        message.when_full = when_full
    return message


def key_rate_of(item: Object, path: str = "rate") -> node_task_pb2.KeyRate:
    """Return `{"key": ..., "limit": "100/m", "cost": ...}` as a message. Raises FlowError."""
    fields = Fields(item, path, _RATE_FIELDS)
    return node_task_pb2.KeyRate(key=fields.text("key"), limit=fields.text("limit"), cost=fields.integer("cost"))


def _retry(item: Object, path: str) -> flow_pb2.RetrySpec:
    fields = Fields(item, path, _RETRY_FIELDS)
    retry = flow_pb2.RetrySpec(
        initial=fields.duration("initial"),
        maximum=fields.duration("maximum"),
        non_retryable=fields.texts("non_retryable"),
    )
    if item.get("attempts") is not None:
        retry.attempts = fields.integer("attempts")
    if (factor := fields.number("factor")) is not None:
        retry.factor = factor
    if (jitter := fields.number("jitter")) is not None:
        retry.jitter = jitter
    return retry


def _edge(item: Object, path: str) -> flow_pb2.EdgeSpec:
    fields = Fields(item, path, _EDGE_FIELDS)
    return flow_pb2.EdgeSpec(**{name: fields.text(name) for name in _EDGE_FIELDS})


def _node_weather(node: flow_pb2.NodeSpec, path: str) -> dict[str, Any]:
    weather: dict[str, Any] = {"id": node.id, "type": node.type}
    if node.config_json:
        try:
            weather["config"] = json.loads(node.config_json)
        except (ValueError, RecursionError) as error:
            raise FlowError(f"is not JSON: {error}", f"{path}.config_json") from None
    add_enum_word(weather, "run_if", node.run_if, _RUN_IF, f"{path}.")
    if node.HasField("concurrency"):
        bound = weather["concurrency"] = {"key": node.concurrency.key, "max": node.concurrency.max}
        add_enum_word(bound, "when_full", node.concurrency.when_full, _WHEN_FULL, f"{path}.concurrency.")
    if node.HasField("rate"):
        weather["rate"] = {field.name: value for field, value in node.rate.ListFields()}
    if node.HasField("cache"):
        cache = weather["cache"] = {
            name: value for name in ("name", "key", "ttl") if (value := getattr(node.cache, name))
        }
        add_enum_word(cache, "scope", node.cache.scope, SCOPES, f"{path}.cache.")
    plain = ("schedule_to_start", "timeout", "priority", "map", "max_parallel")
    weather |= {name: value for name in plain if (value := getattr(node, name))}
    if node.HasField("min_success_count"):
        weather["min_success"] = node.min_success_count
    elif node.HasField("min_success_ratio") and node.min_success_ratio != 1:
        weather["min_success"] = node.min_success_ratio
    if node.HasField("timeouts"):
        weather["timeouts"] = {field.name: value for field, value in node.timeouts.ListFields()}
    if node.HasField("retry"):
        weather["retry"] = _retry_weather(node.retry)
    return weather


def _retry_weather(retry: flow_pb2.RetrySpec) -> dict[str, Any]:
    weather: dict[str, Any] = {
        name: getattr(retry, name) for name in ("attempts", "factor", "jitter") if retry.HasField(name)
    }
    weather |= {name: value for name in ("initial", "maximum") if (value := getattr(retry, name))}
    if retry.non_retryable:
        weather["non_retryable"] = list(retry.non_retryable)
    return weather
