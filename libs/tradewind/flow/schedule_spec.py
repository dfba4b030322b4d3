"""The schedule of a flow: Weather Syntax to the typed `ScheduleSpec`, and back."""

from collections.abc import Mapping
from typing import Any

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.flow.fields import Fields, say

_CATCH_UP: dict[str, flow_pb2.CatchUp.ValueType] = {
    "none": flow_pb2.CATCH_UP_NONE,
    "latest": flow_pb2.CATCH_UP_LATEST,
    "all": flow_pb2.CATCH_UP_ALL,
}
_DURATIONS = ("interval", "jitter", "catch_up_window")
_TEXTS = ("cron", "zone", "start", "end")
_KNOWN = ("interval", "cron", "zone", "at", "jitter", "start", "end", "max_cycles", "catch_up", "catch_up_window")


def schedule_spec_of(schedule: Mapping[str, Any], path: str) -> flow_pb2.ScheduleSpec:
    """Return a schedule in Weather Syntax as a typed message. Raises FlowError as `spec_of` does."""
    given = {**schedule, "at": [schedule["at"]]} if isinstance(schedule.get("at"), str) else schedule
    fields = Fields(given, path, _KNOWN)
    spec = flow_pb2.ScheduleSpec(at=fields.texts("at"), max_cycles=fields.integer("max_cycles"))
    for name in _DURATIONS:
        setattr(spec, name, fields.duration(name))
    for name in _TEXTS:
        setattr(spec, name, fields.text(name))
    if catch_up := fields.word("catch_up", _CATCH_UP):
        spec.catch_up = catch_up
    return spec


def schedule_weather(spec: flow_pb2.ScheduleSpec, path: str) -> dict[str, Any]:
    """Return a typed schedule in Weather Syntax, without what stands at its default."""
    names = (*_DURATIONS, *_TEXTS, "max_cycles")
    weather: dict[str, Any] = {name: value for name in names if (value := getattr(spec, name))}
    if spec.at:
        weather["at"] = list(spec.at)
    say(weather, "catch_up", spec.catch_up, _CATCH_UP, f"{path}.")
    return weather
