"""Reads flow definitions from requests: Weather Syntax as a Struct or as text, or a typed definition."""

from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value

from tradewind.api.node_task_manager.v1 import cache_pb2, node_task_pb2
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.json_text import UNREADABLE, read_json_text
from tradewind.scheduler.domain.weather import FlowDraft, check_counts, read_weather, read_weather_json
from tradewind.server.large_work import LARGE_BYTES, in_thread_if

_RUN_IF = {
    node_task_pb2.RUN_IF_ALL_SUCCEEDED: "all_succeeded",
    node_task_pb2.RUN_IF_ANY_SUCCEEDED: "any_succeeded",
    node_task_pb2.RUN_IF_ALL_DONE: "all_done",
}
_WHEN_FULL = {
    node_task_pb2.WHEN_FULL_WAIT: "wait",
    node_task_pb2.WHEN_FULL_DROP_NEW: "drop_new",
    node_task_pb2.WHEN_FULL_CANCEL_OLDEST: "cancel_oldest",
    node_task_pb2.WHEN_FULL_KEEP_NEWEST: "keep_newest",
}
_SCOPES = {
    cache_pb2.CACHE_SCOPE_USER: "user",
    cache_pb2.CACHE_SCOPE_FLOW: "flow",
    cache_pb2.CACHE_SCOPE_GLOBAL: "global",
}
_OVERLAP = {
    flow_pb2.OVERLAP_POLICY_SKIP: "skip",
    flow_pb2.OVERLAP_POLICY_ALLOW: "allow",
    flow_pb2.OVERLAP_POLICY_QUEUE_ONE: "queue_one",
    flow_pb2.OVERLAP_POLICY_QUEUE_ALL: "queue_all",
    flow_pb2.OVERLAP_POLICY_CANCEL_RUNNING: "cancel_running",
}
_CATCH_UP = {flow_pb2.CATCH_UP_NONE: "none", flow_pb2.CATCH_UP_LATEST: "latest", flow_pb2.CATCH_UP_ALL: "all"}
_FAILURE_POLICY = {
    node_task_pb2.FAILURE_POLICY_SKIP_DOWNSTREAM: "skip_downstream",
    node_task_pb2.FAILURE_POLICY_FAIL_FAST: "fail_fast",
    node_task_pb2.FAILURE_POLICY_CONTINUE: "continue",
}


async def read_draft(form: str | None, message: Any) -> FlowDraft:
    """Read the definition in the field `form` of `message`; others have their turns if it may be large."""
    # To measure a Struct of 10 000 nodes takes 4 ms; a small one in the thread would wait for the large ones there.
    return await in_thread_if(message.ByteSize() > LARGE_BYTES, _draft_of, form, message)


def _draft_of(form: str | None, message: Any) -> FlowDraft:
    """Read the definition in the field `form` of `message`."""
    match form:
        case "weather":
            return read_weather(_object(message.weather), from_struct=True)
        case "weather_json":
            return read_weather_json(message.weather_json)
        case "spec":
            return _draft_of_spec(message.spec)
        case _:
            faults = FaultList()
            faults.add("definition", "is required; give exactly one of weather, weather_json and spec")
            return FlowDraft((), (), None, faults)


def _object(struct: Struct) -> dict[str, Any]:
    return {key: _value(value) for key, value in struct.fields.items()}


def _value(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            return value.number_value
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _object(value.struct_value)
        case "list_value":
            return _list(value.list_value)
        case _:
            return None


def _list(values: ListValue) -> list[Any]:
    return [_value(value) for value in values.values]


def _draft_of_spec(spec: flow_pb2.FlowSpec) -> FlowDraft:
    counted = FaultList()
    if not check_counts(len(spec.nodes), len(spec.edges), counted):
        # A message has room for two million, which would take a gigabyte in Weather Syntax.
        return FlowDraft((), (), None, counted)
    faults = FaultList()
    weather: dict[str, Any] = {
        "nodes": [_node(node, f"nodes[{place}]", faults) for place, node in enumerate(spec.nodes)],
        "edges": [
            {
                "source": edge.source,
                "source_handle": edge.source_handle,
                "target": edge.target,
                "target_handle": edge.target_handle,
            }
            for edge in spec.edges
        ],
        **settings_of(spec, faults),
    }
    return read_weather(weather, earlier=faults)


def settings_of(spec: flow_pb2.FlowSpec, faults: FaultList) -> dict[str, Any]:
    """Return a typed definition in Weather Syntax, without nodes, edges and fields at their defaults."""
    weather: dict[str, Any] = {}
    for name in (
        "interval",
        "timeout",
        "keep_cycles",
        "keep_for",
        "max_running",
        "pause_after_failures",
        "description",
    ):
        if given := getattr(spec, name):
            weather[name] = given
    for name, ids in (("on_failure", spec.on_failure), ("finally", spec.finally_nodes)):
        if ids:
            weather[name] = list(ids)
    if spec.labels:
        weather["labels"] = dict(spec.labels)
    if spec.HasField("schedule"):
        weather["schedule"] = _schedule(spec.schedule, faults)
    _choose(weather, "overlap", spec.overlap, _OVERLAP, "overlap", faults)
    _choose(weather, "failure_policy", spec.failure_policy, _FAILURE_POLICY, "failure_policy", faults)
    return weather


def _schedule(spec: flow_pb2.ScheduleSpec, faults: FaultList) -> dict[str, Any]:
    names = ("interval", "cron", "zone", "jitter", "start", "end", "max_cycles", "catch_up_window")
    schedule: dict[str, Any] = {name: given for name in names if (given := getattr(spec, name))}
    if spec.at:
        schedule["at"] = list(spec.at)
    if spec.HasField("event"):
        event = schedule["event"] = {"name": spec.event.name}
        if spec.event.filter_json:
            wanted = read_json_text(spec.event.filter_json, "schedule.event.filter_json", faults)
            if wanted is not UNREADABLE:
                event["filter"] = wanted
    if spec.HasField("flow_finished"):
        schedule["flow_finished"] = {field.name: list(value) for field, value in spec.flow_finished.ListFields()}
    _choose(schedule, "catch_up", spec.catch_up, _CATCH_UP, "schedule.catch_up", faults)
    return schedule


def _node(node: flow_pb2.NodeSpec, path: str, faults: FaultList) -> dict[str, Any]:
    weather: dict[str, Any] = {"id": node.id, "type": node.type}
    if node.config_json:
        config = read_json_text(node.config_json, f"{path}.config_json", faults)
        if config is not UNREADABLE:
            weather["config"] = config
    for name in ("schedule_to_start", "timeout", "priority", "map", "max_parallel"):
        if given := getattr(node, name):
            weather[name] = given
    if node.HasField("concurrency"):
        concurrency = weather["concurrency"] = {"key": node.concurrency.key, "max": node.concurrency.max}
        path_of = f"{path}.concurrency.when_full"
        _choose(concurrency, "when_full", node.concurrency.when_full, _WHEN_FULL, path_of, faults)
    if node.HasField("rate"):
        weather["rate"] = {field.name: value for field, value in node.rate.ListFields()}
    if node.HasField("cache"):
        cache = weather["cache"] = {
            name: value for name in ("name", "key", "ttl") if (value := getattr(node.cache, name))
        }
        _choose(cache, "scope", node.cache.scope, _SCOPES, f"{path}.cache.scope", faults)
    if node.HasField("min_success_count"):
        weather["min_success"] = node.min_success_count
    elif node.HasField("min_success_ratio"):
        share = node.min_success_ratio
        # A share of 1 means all items, which is the default.
        if 0 < share < 1:
            weather["min_success"] = share
        elif share != 1:
            faults.add(f"{path}.min_success_ratio", f"must be over 0 and at most 1, is {share:g}")
    if node.HasField("timeouts"):
        weather["timeouts"] = {field.name: value for field, value in node.timeouts.ListFields()}
    if node.HasField("retry"):
        weather["retry"] = _retry(node.retry)
    _choose(weather, "run_if", node.run_if, _RUN_IF, f"{path}.run_if", faults)
    return weather


def _retry(retry: flow_pb2.RetrySpec) -> dict[str, Any]:
    """Return the fields that are set, unchanged: they are checked with the rest of the Weather Syntax."""
    weather: dict[str, Any] = {
        name: getattr(retry, name) for name in ("attempts", "factor", "jitter") if retry.HasField(name)
    }
    weather |= {name: value for name in ("initial", "maximum") if (value := getattr(retry, name))}
    if retry.non_retryable:
        weather["non_retryable"] = list(retry.non_retryable)
    return weather


def _choose(
    weather: dict[str, Any], name: str, number: int, names: dict[Any, str], path: str, faults: FaultList
) -> None:
    """Put the word for an enum value into the definition; 0 means the default."""
    if number in names:
        weather[name] = names[number]
    elif number:
        faults.add(path, f"{number} is not a known value; use one of {', '.join(names.values())}")
