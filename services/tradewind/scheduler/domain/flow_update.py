"""Changes fields of a flow on record, other than its nodes and edges."""

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.schedule_definition import KINDS, SCHEDULE_FIELDS
from tradewind.scheduler.domain.weather import FLOW_FIELDS, GRAPH_FIELDS
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import listed, quoted

UPDATABLE = tuple(name for name in FLOW_FIELDS if name not in GRAPH_FIELDS)
"""Fields of a flow that can be changed by themselves; so can `schedule.<field>`."""
_SCHEDULE = "schedule."
_MAX_PATHS = 1000


def check_mask(paths: Sequence[str], faults: FaultList) -> None:
    """Check that every path of a mask names a field that can be changed, and that there are some, but not too many."""
    if len(paths) > _MAX_PATHS:
        faults.add("update_mask.paths", f"at most {_MAX_PATHS} at once, there are {len(paths)}")
        return
    if not paths:
        faults.add("update_mask", f"must name the fields to change; use any of {listed(list(UPDATABLE))}")
    nearest = NearestName([*UPDATABLE, *(_SCHEDULE + name for name in SCHEDULE_FIELDS)])
    choices = f"; use any of {listed(list(UPDATABLE))} and the fields of schedule"
    for place, path in enumerate(paths):
        if path in UPDATABLE or (path.startswith(_SCHEDULE) and path.removeprefix(_SCHEDULE) in SCHEDULE_FIELDS):
            continue
        at = join("update_mask.paths", place)
        if path.partition(".")[0].partition("[")[0] in GRAPH_FIELDS:
            faults.add(at, f"{quoted(path)} is part of the graph; to change it, register the flow again")
        else:
            hint = "" if faults.full else nearest.hint(path, choices)
            faults.add(at, f"{quoted(path)} is not a field that can be changed{hint}")


def updated(weather: Mapping[str, Any], given: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return a flow in Weather Syntax with the fields at `paths` taken from `given`, absent ones at their defaults.

    A schedule replaces an interval; beside a schedule, the interval is one of its fields. Each of the fields that say
    when cycles begin replaces the others. The result has yet to be read and checked.
    """
    if "interval" in paths and "schedule" not in paths and weather.get("schedule") is not None:
        paths = [_SCHEDULE + path if path == "interval" else path for path in paths]
        given = {**given, "schedule": {**(given.get("schedule") or {}), "interval": given.get("interval")}}
    changed = dict(weather)
    fields = [path.removeprefix(_SCHEDULE) for path in paths if path.startswith(_SCHEDULE)]
    for path in paths:
        if path.startswith(_SCHEDULE):
            continue
        changed.pop(path, None)
        if given.get(path) is None:
            continue
        changed[path] = given[path]
        if path == "schedule" and "interval" not in paths:
            changed.pop("interval", None)
    if fields:
        changed["schedule"] = _with_fields(_schedule(changed), fields, given)
        changed.pop("interval", None)
    return changed


def _schedule(weather: Mapping[str, Any]) -> dict[str, Any]:
    if weather.get("schedule") is not None:
        return dict(weather["schedule"])
    return {"interval": weather["interval"]} if weather.get("interval") is not None else {}


def _with_fields(schedule: dict[str, Any], names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    values = given.get("schedule") or {}
    new = {name: values[name] for name in names if values.get(name) is not None}
    replaced = KINDS if any(name in KINDS for name in new) else ()
    return _without(schedule, [*names, *replaced]) | new


def _without(schedule: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in schedule.items() if name not in names}
