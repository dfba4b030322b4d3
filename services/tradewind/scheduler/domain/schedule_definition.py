"""The schedule of a flow as defined: when its cycles are planned or which events begin them, and what is missed."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.event_schedule import EVENT_FIELDS, EventSchedule, read_event_schedule
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.intervals import LONGEST_MS, format_duration
from tradewind.scheduler.domain.json_text import canonical_json
from tradewind.scheduler.domain.paths import join, shown
from tradewind.server.schedules.grids import LAST_MS, CronGrid, EmptyGrid, Grid, IntervalGrid, TimesGrid
from tradewind.server.schedules.jitter import delay_ms
from tradewind.server.schedules.schedule import Schedule, Verdict, catch_up

MAX_TIMES = 1000
LONGEST_CRON = 256
"""In characters."""
MAX_CYCLES = 1_000_000_000
WINDOW_MS = 3_600_000
"""How late a planned time may fire by default: an hour."""
ON_TIME_MS = 10_000
"""Without catching up, a planned time that is later than this is missed."""

SCHEDULE_FIELDS = (
    "interval",
    "cron",
    "zone",
    "at",
    *EVENT_FIELDS,
    "jitter",
    "start",
    "end",
    "max_cycles",
    "catch_up",
    "catch_up_window",
)
KINDS = ("interval", "cron", "at", *EVENT_FIELDS)
"""Fields that say when, or on what, cycles begin; a schedule has one of them."""
_OF_TIMES = ("jitter", "catch_up")
"""Fields that do not apply to events: each event is a firing of its own, as soon as it comes."""
_TIME_FORM = 'give a time with its offset, such as "2026-11-21T09:30:00Z" or "2026-11-21T09:30:00+01:00"'


class CatchUp(StrEnum):
    """Which of the planned times that have passed fire late: none, the latest, or all of them."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """An interval, a cron expression in a time zone, single times or events; without any, one cycle at the start.

    Times in epoch milliseconds, 0 for none. At most `max_cycles` begin, 0 for no limit. A planned time fires up to
    `jitter_ms` late on purpose, and does not fire if it is later than `window_ms`.
    """

    interval_ms: int = 0
    cron: str = ""
    zone: str = "UTC"
    times_ms: tuple[int, ...] = ()
    jitter_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    max_cycles: int = 0
    catch_up: CatchUp = CatchUp.LATEST
    window_ms: int = WINDOW_MS
    on: EventSchedule | None = None

    @property
    def once(self) -> bool:
        """Whether it plans a single cycle, at the start of the flow."""
        return not (self.interval_ms or self.cron or self.times_ms or self.on)

    @property
    def begins_with_the_flow(self) -> bool:
        """Whether the first planned time is when the flow is started, rather than on a grid of its own."""
        return not (self.cron or self.times_ms or self.start_ms or self.on)

    @property
    def standby_ms(self) -> int:
        """The standby time: the value that a flow that begins on events has instead of its next planned time.

        It is minus the moment at which its window ends, -1 for a window without an end; 0 when the flow begins at
        planned times.
        """
        return -(self.end_ms or 1) if self.on else 0

    @property
    def unknown_zone(self) -> str:
        """Its time zone if that is not known here, so that its times cannot be computed; otherwise ""."""
        return self.zone if self.cron and not CronGrid(self.cron, self.zone, on_record=True).known else ""

    def is_missed(self, event_ms: int, now_ms: int) -> bool:
        """Say whether an event is found too late for a cycle to begin."""
        return now_ms - event_ms > self.window_ms

    def is_over(self, now_ms: int) -> bool:
        """Say whether its window has ended, so that no more cycles begin."""
        return 0 < self.end_ms <= now_ms

    def planned(self, from_ms: int) -> Schedule:
        """Return its planned times from `from_ms` on, which is the first of them if the schedule begins with the flow.

        A schedule that begins on events has none. UnknownZone is raised, as soon as a time is asked for, when its time
        zone is not known here.
        """
        return Schedule(self._grid(from_ms), max(self.start_ms, from_ms), self.end_ms)

    def delivery_ms(self, flow_id: str, planned_ms: int) -> int:
        """Return when a planned time of a flow is due with its jitter: its trigger chooses the same moment."""
        return planned_ms + delay_ms(flow_id, planned_ms, self.jitter_ms)

    def first_ahead(self, flow_id: str, from_ms: int, now_ms: int) -> int | None:
        """Return the first planned time from `from_ms` on for which a flow is not due yet, with its jitter.

        None when there is none. Raises UnknownZone.
        """
        planned = self.planned(from_ms)
        following = planned.after(max(from_ms, now_ms - self.jitter_ms) - 1)
        while following is not None and following < now_ms and self.delivery_ms(flow_id, following) <= now_ms:
            following = planned.after(following)
        return following

    def judge(self, due_ms: int, now_ms: int) -> Verdict:
        """Judge a planned time that is due: what fires, what is due next, what was missed.

        A time that an earlier schedule planned may lie at or after the end of this one: then this one is over. Raises
        UnknownZone.
        """
        if self.is_over(due_ms):
            return Verdict(None, None)
        window_ms = ON_TIME_MS if self.catch_up is CatchUp.NONE else self.window_ms
        fire_all = self.catch_up is CatchUp.ALL
        planned = self.planned(due_ms)
        return catch_up(planned, due_ms, now_ms, window_ms, jitter_ms=self.jitter_ms, fire_all=fire_all)

    def _grid(self, from_ms: int) -> Grid:
        if self.on:
            return EmptyGrid()
        if self.cron:
            return CronGrid(self.cron, self.zone, on_record=True)
        if self.times_ms:
            return TimesGrid(self.times_ms)
        first_ms = self.start_ms or from_ms
        return IntervalGrid(self.interval_ms, first_ms) if self.interval_ms else TimesGrid((first_ms,))

    def to_weather(self) -> dict[str, Any]:
        """Return its fields in Weather Syntax, without fields at their defaults."""
        weather: dict[str, Any] = {}
        if self.interval_ms:
            weather["interval"] = format_duration(self.interval_ms)
        if self.cron:
            weather["cron"] = self.cron
            if self.zone != "UTC":
                weather["zone"] = self.zone
        if self.times_ms:
            weather["at"] = [_format_time(time) for time in self.times_ms]
        if self.on:
            weather |= self.on.to_weather()
        for name, time_ms in (("start", self.start_ms), ("end", self.end_ms)):
            if time_ms:
                weather[name] = _format_time(time_ms)
        if self.jitter_ms:
            weather["jitter"] = format_duration(self.jitter_ms)
        if self.max_cycles:
            weather["max_cycles"] = self.max_cycles
        if self.catch_up is not CatchUp.LATEST:
            weather["catch_up"] = self.catch_up.value
        if self.window_ms != WINDOW_MS:
            weather["catch_up_window"] = format_duration(self.window_ms)
        # Other fields are only readable beside the one that says when.
        return {"interval": 0, **weather} if weather and self.once else weather

    def to_json(self) -> str:
        """Return it as canonical JSON text; equal schedules give equal text."""
        return canonical_json(self.to_weather())

    @property
    def only_interval(self) -> bool:
        """Whether the flow's field `interval` can express all of it."""
        return self == ScheduleDefinition(self.interval_ms)


def schedule_from_json(text: str) -> ScheduleDefinition:
    """Return the schedule that `ScheduleDefinition.to_json` wrote. Raises ValueError for any other text."""
    weather = json.loads(text)
    if not weather:
        return ScheduleDefinition()
    faults = FaultList(on_record=True)
    definition = read_schedule(Fields(weather, "schedule", faults))
    if len(faults):
        raise ValueError(f"not a stored schedule: {faults.violations()[0].message}")
    return definition


def read_schedule(fields: Fields) -> ScheduleDefinition:
    """Read the fields of a schedule; a field at fault is noted and gets its default."""
    fields.refuse_unknown(SCHEDULE_FIELDS)
    given = [name for name in KINDS if fields.get(name) is not None]
    if len(given) != 1:
        named = " and ".join(given) if given else "none"
        fields.faults.add(fields.path, f"must have exactly one of {', '.join(KINDS[:-1])} and {KINDS[-1]}, has {named}")
    interval_ms = fields.duration("interval", 0)
    times_ms = _times(fields.get("at"), join(fields.path, "at"), fields.faults)
    on = read_event_schedule(fields)
    cron, zone = _cron(fields)
    start_ms = _time(fields.get("start"), join(fields.path, "start"), fields.faults)
    end_ms = _time(fields.get("end"), join(fields.path, "end"), fields.faults)
    definition = ScheduleDefinition(
        interval_ms=interval_ms,
        cron=cron,
        zone=zone,
        times_ms=times_ms,
        jitter_ms=fields.duration("jitter", 0, max_ms=interval_ms or 86_400_000),
        start_ms=start_ms,
        end_ms=end_ms,
        max_cycles=fields.integer("max_cycles", 0, 1, MAX_CYCLES),
        catch_up=CatchUp(fields.choice("catch_up", list(CatchUp), CatchUp.LATEST)),
        window_ms=fields.duration("catch_up_window", WINDOW_MS, least_ms=1000, max_ms=LONGEST_MS),
        on=on,
    )
    if any(name in EVENT_FIELDS for name in given):
        for name in _OF_TIMES:
            if fields.get(name) is not None:
                fields.fault(name, "is only allowed with planned times, not with events")
        if end_ms and end_ms <= start_ms:
            fields.fault("end", "must be after start")
    elif end_ms and not definition.unknown_zone and definition.planned(0).after(0) is None:
        fields.fault("end", "nothing is planned before it")
    return definition


def is_cron(text: str) -> bool:
    """Say whether text is a cron expression, whichever field holds it."""
    if len(text) > LONGEST_CRON:
        return False
    try:
        CronGrid(text, "UTC")
    except ValueError:
        return False
    return True


def _cron(fields: Fields) -> tuple[str, str]:
    """Return a cron expression and its time zone, "" and UTC when the expression is absent or either is at fault."""
    expression, zone = fields.text("cron", LONGEST_CRON), fields.text("zone", 64) or "UTC"
    if fields.get("cron") is None:
        if fields.get("zone") is not None:
            fields.fault("zone", "is only allowed together with cron")
        return "", "UTC"
    checks = [("zone", "0 0 * * *", zone)]
    if expression or fields.get("cron") == "":
        # Otherwise it is not text, or too long, and that has been noted.
        checks.insert(0, ("cron", expression, "UTC"))
    valid = bool(expression)
    for name, text, in_zone in checks:
        try:
            CronGrid(text, in_zone, on_record=fields.faults.on_record)
        except ValueError as error:
            fields.fault(name, str(error))
            valid = False
    return (expression, zone) if valid else ("", "UTC")


def _times(value: object, path: str, faults: FaultList) -> tuple[int, ...]:
    if value is None:
        return ()
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= MAX_TIMES:
        faults.add(path, f"must be a time or a list of 1 to {MAX_TIMES} times, holds {len(given)}")
        return ()
    several = isinstance(value, list)
    times = {_time(one, join(path, place) if several else path, faults) for place, one in enumerate(given)}
    return tuple(sorted(times - {0}))


def _time(value: object, path: str, faults: FaultList) -> int:
    """Return a time in milliseconds, 0 when it is absent or at fault."""
    if value is None:
        return 0
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        faults.add(path, f"cannot read {shown(value)} as a time; {_TIME_FORM}")
        return 0
    milliseconds = int(moment.timestamp() * 1000)
    if not 0 < milliseconds <= LAST_MS:
        faults.add(path, f"must be between 1970 and 9999 in UTC, is {shown(value)}")
        return 0
    return milliseconds


def _format_time(time_ms: int) -> str:
    precision = "milliseconds" if time_ms % 1000 else "seconds"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
