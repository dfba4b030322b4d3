"""Schedules as the store keeps them: two numbers that scripts compute with, and a text with the rest."""

from functools import lru_cache

import msgspec

from tradewind.server.schedules.event_filter import EventFilter
from tradewind.server.schedules.grids import CronGrid, IntervalGrid, TimesGrid
from tradewind.trigger.domain.schedule import Delay, Kind, Once, OnEvent, Schedule

NEEDS_NEXT = -1
"""The interval of a trigger that repeats at times which scripts cannot compute."""


class _Rest(msgspec.Struct, omit_defaults=True):
    cron: tuple[str, str] | None = None
    times: tuple[int, ...] | None = None
    jitter: int = 0
    start: int = 0
    end: int = 0
    max: int = 0
    delay: int | None = None
    event: tuple[str, str] | None = None


_decode = msgspec.json.Decoder(_Rest).decode


def encode(schedule: Schedule) -> tuple[int, int, str]:
    """Return interval, anchor and a text with the rest; equal schedules have equal texts, a plain one an empty text."""
    rest = _Rest(jitter=schedule.jitter_ms, start=schedule.start_ms, end=schedule.end_ms, max=schedule.max_firings)
    interval_ms, anchor_ms = NEEDS_NEXT, 0
    match schedule.kind:
        case Once(at_ms):
            interval_ms, anchor_ms = 0, at_ms
        case IntervalGrid(interval_ms, anchor_ms):
            pass
        case CronGrid(expression, zone):
            rest.cron = (expression, zone)
        case TimesGrid(times_ms):
            rest.times = times_ms
        case Delay(delay_ms):
            interval_ms, rest.delay = 0, delay_ms
        case OnEvent(name, filter):
            interval_ms, rest.event = 0, (name, filter.text)
    return interval_ms, anchor_ms, "" if rest == _Rest() else msgspec.json.encode(rest).decode()


@lru_cache(maxsize=4096)
def decode(interval_ms: int, anchor_ms: int, text: str) -> Schedule:
    """Return the schedule that `encode` made these values of."""
    rest = _decode(text) if text else _Rest()
    kind: Kind
    if rest.cron:
        kind = CronGrid(*rest.cron, on_record=True)
    elif rest.times:
        kind = TimesGrid(rest.times)
    elif rest.delay is not None:
        kind = Delay(rest.delay)
    elif rest.event:
        kind = OnEvent(rest.event[0], EventFilter(rest.event[1]))
    elif interval_ms:
        kind = IntervalGrid(interval_ms, anchor_ms)
    else:
        kind = Once(anchor_ms)
    return Schedule(kind, rest.jitter, rest.start, rest.end, rest.max)
