"""The schedule of a flow: Weather Syntax to the typed `ScheduleSpec`, and back."""

import json
from collections.abc import Mapping
from typing import Any

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.flow.fields import Fields, add_enum_word
from tradewind.flow.values import json_copy

_CATCH_UP: dict[str, flow_pb2.CatchUp.ValueType] = {
    "none": flow_pb2.CATCH_UP_NONE,
    "latest": flow_pb2.CATCH_UP_LATEST,
    "all": flow_pb2.CATCH_UP_ALL,
}
_DURATIONS = ("interval", "jitter", "catch_up_window")
_TEXTS = ("cron", "zone", "start", "end")
KNOWN = (
    *("interval", "cron", "zone", "at", "event", "flow_finished"),
    *("jitter", "start", "end", "max_cycles", "catch_up", "catch_up_window"),
)


def schedule_spec_of(schedule: Mapping[str, Any], path: str) -> flow_pb2.ScheduleSpec:
    """Return a schedule in Weather Syntax as a typed message. Raises FlowError as `spec_of` does."""
    given = {**schedule, "at": [schedule["at"]]} if isinstance(schedule.get("at"), str) else schedule
    fields = Fields(given, path, KNOWN)
    spec = flow_pb2.ScheduleSpec(at=fields.texts("at"), max_cycles=fields.integer("max_cycles"))
    for name in _DURATIONS:
        setattr(spec, name, fields.duration(name))
    for name in _TEXTS:
        setattr(spec, name, fields.text(name))
    if catch_up := fields.word("catch_up", _CATCH_UP):
        spec.catch_up = catch_up
    if schedule.get("event") is not None:
        event = Fields(fields.object("event"), f"{path}.event", ("name", "filter"))
        spec.event.name = event.text("name")
        if event_filter := event.object("filter"):
            spec.event.filter_json = json.dumps(json_copy(event_filter, f"{path}.event.filter"))
    if schedule.get("flow_finished") is not None:
        ends = Fields(fields.object("flow_finished"), f"{path}.flow_finished", ("flow_ids", "statuses"))
        spec.flow_finished.flow_ids.extend(ends.texts("flow_ids"))
        spec.flow_finished.statuses.extend(ends.texts("statuses"))
        spec.flow_finished.SetInParent()
    return spec


def schedule_weather(spec: flow_pb2.ScheduleSpec, path: str) -> dict[str, Any]:
    """Return a typed schedule in Weather Syntax, without fields at their defaults."""
    names = (*_DURATIONS, *_TEXTS, "max_cycles")
    weather: dict[str, Any] = {name: value for name in names if (value := getattr(spec, name))}
    if spec.at:
        weather["at"] = list(spec.at)
    if spec.HasField("event"):
        event_filter = {"filter": json.loads(spec.event.filter_json)} if spec.event.filter_json else {}
        weather["event"] = {"name": spec.event.name, **event_filter}
    if spec.HasField("flow_finished"):
        weather["flow_finished"] = {field.name: list(value) for field, value in spec.flow_finished.ListFields()}
    add_enum_word(weather, "catch_up", spec.catch_up, _CATCH_UP, f"{path}.")
    return weather
