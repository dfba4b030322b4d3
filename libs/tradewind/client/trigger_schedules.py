"""When a trigger fires, made from the arguments of callers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.client.json_text import encode
from tradewind.client.messages import build
from tradewind.client.wire import Seconds, as_list, seconds_of, span, timestamp

_KINDS = "at, times, after, every, cron, event or on_finished"


def schedule_of(
    *,
    at: datetime | None = None,
    times: Sequence[datetime] = (),
    after: Seconds | None = None,
    every: Seconds | None = None,
    anchor: datetime | None = None,
    cron: str = "",
    time_zone: str = "",
    event: str = "",
    filter: Mapping[str, Any] | None = None,
    on_finished: Sequence[str] | str | None = None,
    statuses: Sequence[str] = (),
    jitter: Seconds = 0.0,
    start: datetime | None = None,
    end: datetime | None = None,
    max_firings: int = 0,
) -> trigger_pb2.Schedule:
    """Return the schedule that the arguments describe.

    Raises ValueError unless they describe exactly one kind, and for what goes only with another kind.
    """
    given = [at is not None, bool(times), after is not None, every is not None, bool(cron), bool(event)]
    if [*given, on_finished is not None].count(True) != 1:
        raise ValueError(f"give exactly one of {_KINDS} to say when the trigger fires")
    for name, kind, alone in (
        ("anchor", "every", anchor is not None and every is None),
        ("time_zone", "cron", bool(time_zone) and not cron),
        ("filter", "event", bool(filter) and not event),
        ("statuses", "on_finished", bool(statuses) and on_finished is None),
    ):
        if alone:
            raise ValueError(f"{name} goes only with {kind}")
    schedule = build(trigger_pb2.Schedule, start=timestamp(start), end=timestamp(end), max_firings=max_firings)
    if seconds_of(jitter):
        schedule.jitter.CopyFrom(span(seconds_of(jitter)))
    if at is not None:
        schedule.once.at.CopyFrom(timestamp(at))
    elif times:
        schedule.times.at.extend(timestamp(each) for each in times)
    elif after is not None:
        schedule.delay.CopyFrom(span(seconds_of(after)))
    elif every is not None:
        schedule.interval.interval.CopyFrom(span(seconds_of(every)))
        if anchor is not None:
            schedule.interval.anchor.CopyFrom(timestamp(anchor))
    elif cron:
        schedule.cron.expression, schedule.cron.time_zone = cron, time_zone
    elif event:
        schedule.event.name = event
        schedule.event.filter_json = encode(dict(filter)) if filter else ""
    else:
        schedule.flow_finished.flow_ids.extend(as_list(on_finished or ()))
        schedule.flow_finished.statuses.extend(as_list(statuses))
        schedule.flow_finished.SetInParent()
    return schedule
