"""Maps schedules to messages and back."""

import json

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.server.schedules.event_filter import EventFilter, FilterFault
from tradewind.server.schedules.grids import LAST_MS, CronGrid, IntervalGrid, TimesGrid
from tradewind.server.timestamps import duration, timestamp
from tradewind.trigger.domain.schedule import MAX_JITTER_MS, Delay, Kind, Once, OnEvent, Schedule
from tradewind.trigger.rpc.faults import Faults

MAX_TIMES = 1000
MAX_EXPRESSION = 256
MAX_FLOWS = 100
FLOW_FINISHED = "flow.finished"
"""The event that the scheduler publishes when a cycle has ended; its payload has flow_id, cycle and status."""
ENDINGS = ("completed", "partial", "failed", "timeout", "cancelled")
"""The statuses with which a cycle can end."""

KINDS = "once, interval, cron, times, delay, event or flow_finished"


def message(schedule: Schedule) -> trigger_pb2.Schedule:
    """Return a schedule as a message."""
    proto = trigger_pb2.Schedule(max_firings=schedule.max_firings)
    match schedule.kind:
        case Once(at_ms):
            proto.once.at.CopyFrom(timestamp(at_ms))
        case IntervalGrid(interval_ms, anchor_ms):
            proto.interval.interval.CopyFrom(duration(interval_ms))
            proto.interval.anchor.CopyFrom(timestamp(anchor_ms))
        case CronGrid(expression, zone):
            proto.cron.expression, proto.cron.time_zone = expression, zone
        case TimesGrid(times_ms):
            proto.times.at.extend(map(timestamp, times_ms))
        case Delay(delay_ms):
            proto.delay.CopyFrom(duration(delay_ms))
        case OnEvent(name, filter):
            proto.event.name, proto.event.filter_json = name, filter.text
    if schedule.jitter_ms:
        proto.jitter.CopyFrom(duration(schedule.jitter_ms))
    if schedule.start_ms:
        proto.start.CopyFrom(timestamp(schedule.start_ms))
    if schedule.end_ms:
        proto.end.CopyFrom(timestamp(schedule.end_ms))
    return proto


def read(proto: trigger_pb2.Schedule, path: str, faults: Faults, now_ms: int) -> Schedule | None:
    """Return the schedule of a message that came at `now_ms`, None if it has faults, which are added to `faults`."""
    before = len(faults)
    start_ms = faults.time_ms(f"{path}.start", proto.start) if proto.HasField("start") else 0
    kind = _kind(proto, path, faults, start_ms, now_ms)
    jitter_ms = faults.span_ms(f"{path}.jitter", proto.jitter, least=0) if proto.HasField("jitter") else 0
    if jitter_ms > MAX_JITTER_MS:
        faults.add(f"{path}.jitter", "must be at most 24 hours")
    end_ms = faults.time_ms(f"{path}.end", proto.end) if proto.HasField("end") else 0
    if proto.HasField("end") and end_ms <= start_ms:
        faults.add(f"{path}.end", "must be after the start")
    if proto.max_firings < 0:
        faults.add(f"{path}.max_firings", f"must be 0 (any number) or more, is {proto.max_firings}")
    if kind is None or len(faults) > before:
        return None
    try:
        return Schedule(kind, jitter_ms, start_ms, end_ms, proto.max_firings)
    except ValueError as error:
        faults.add(path, str(error))
        return None


def _kind(proto: trigger_pb2.Schedule, path: str, faults: Faults, start_ms: int, now_ms: int) -> Kind | None:
    before = len(faults)
    kind = proto.WhichOneof("kind")
    at = f"{path}.{kind}"
    try:
        match kind:
            case "once":
                at_ms = _once_at(f"{at}.at", proto.once, faults)
                return None if len(faults) > before else Once(at_ms)
            case "interval":
                return _interval(proto.interval, at, faults, start_ms, now_ms)
            case "cron":
                if len(proto.cron.expression) > MAX_EXPRESSION or len(proto.cron.time_zone) > MAX_EXPRESSION:
                    faults.add(at, f"expression and time_zone must have at most {MAX_EXPRESSION} characters each")
                    return None
                return CronGrid(proto.cron.expression, proto.cron.time_zone or "UTC")
            case "times":
                if len(proto.times.at) > MAX_TIMES:
                    faults.add(f"{at}.at", f"must have at most {MAX_TIMES} times, has {len(proto.times.at)}")
                    return None
                times = tuple(faults.time_ms(f"{at}.at[{n}]", one) for n, one in enumerate(proto.times.at))
                return None if len(faults) > before else TimesGrid(times)
            case "delay":
                delay_ms = faults.span_ms(at, proto.delay, least=0)
                return None if len(faults) > before else Delay(delay_ms)
            case "event":
                at = f"{at}.filter_json"
                faults.identifier(f"{path}.event.name", proto.event.name)
                filter = EventFilter(proto.event.filter_json)
                return None if len(faults) > before else OnEvent(proto.event.name, filter)
            case "flow_finished":
                return _flow_finished(proto.flow_finished, at, faults)
    except ValueError as error:
        faults.add(at, str(error))
        return None
    faults.add(path, f"must be set to one of {KINDS}")
    return None


def _interval(
    proto: trigger_pb2.IntervalSchedule, path: str, faults: Faults, start_ms: int, now_ms: int
) -> IntervalGrid | None:
    before = len(faults)
    interval_ms = 0
    if proto.HasField("interval"):
        interval_ms = faults.span_ms(f"{path}.interval", proto.interval, least=1, exact=True)
    else:
        faults.add(f"{path}.interval", "must be set, to at least 1 ms")
    anchor_ms = start_ms or now_ms + interval_ms
    if proto.HasField("anchor"):
        anchor_ms = faults.time_ms(f"{path}.anchor", proto.anchor)
    elif anchor_ms > LAST_MS:
        faults.add(f"{path}.interval", "is too long: the first time would be after the year 9999")
    return None if len(faults) > before else IntervalGrid(interval_ms, anchor_ms)


def _flow_finished(proto: trigger_pb2.FlowFinishedSchedule, path: str, faults: Faults) -> OnEvent | None:
    before = len(faults)
    if len(proto.flow_ids) > MAX_FLOWS:
        faults.add(
            f"{path}.flow_ids",
            f"must name at most {MAX_FLOWS} flows, names {len(proto.flow_ids)}; leave it empty for all",
        )
        return None
    for at, flow_id in enumerate(proto.flow_ids):
        faults.identifier(f"{path}.flow_ids[{at}]", flow_id)
    for at, status in enumerate(proto.statuses):
        if status not in ENDINGS:
            faults.add(
                f"{path}.statuses[{at}]",
                f'"{status[:128]}" is not a final status of a cycle; use any of {", ".join(ENDINGS)}',
            )
    named = {"flow_id": list(proto.flow_ids), "status": list(proto.statuses)}
    wanted = {field: {"$in": values} for field, values in named.items() if values}
    if len(faults) > before:
        return None
    try:
        return OnEvent(FLOW_FINISHED, EventFilter(json.dumps(wanted, separators=(",", ":")) if wanted else ""))
    except FilterFault:
        faults.add(f"{path}.flow_ids", "the names are too long: at most 4 KiB in all")
        return None


def _once_at(path: str, proto: trigger_pb2.OnceSchedule, faults: Faults) -> int:
    if proto.HasField("at"):
        return faults.time_ms(path, proto.at)
    faults.add(path, "must be set")
    return 0
