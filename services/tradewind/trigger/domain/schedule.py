"""When a trigger fires: a kind of schedule within a window, with jitter. Whole milliseconds of the epoch, UTC."""

from dataclasses import dataclass
from typing import Self

from tradewind.server.schedules.event_filter import EventFilter
from tradewind.server.schedules.grids import LAST_MS, CronGrid, IntervalGrid, TimesGrid
from tradewind.server.schedules.jitter import delay_ms
from tradewind.server.schedules.schedule import Schedule as Windowed

MAX_JITTER_MS = 24 * 3_600_000
MAX_FIRINGS = 2**31 - 1
MAX_DELAY_MS = 3650 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Once:
    """Fires at one time, even if that has passed."""

    at_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.at_ms <= LAST_MS:
            raise ValueError(f"a time must be between 1970 and 9999, is {self.at_ms} ms since 1970")


@dataclass(frozen=True, slots=True)
class Delay:
    """Fires once, `delay_ms` after it was saved. Raises ValueError when that is out of range."""

    delay_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.delay_ms <= MAX_DELAY_MS:
            raise ValueError(f"a delay must be 0 to {MAX_DELAY_MS} ms, is {self.delay_ms} ms")


@dataclass(frozen=True, slots=True)
class OnEvent:
    """Fires for each event of a name whose payload matches a filter."""

    name: str
    filter: EventFilter


Kind = Once | IntervalGrid | CronGrid | TimesGrid | Delay | OnEvent


@dataclass(frozen=True, slots=True)
class Schedule:
    """Fires at the times of its kind from `start_ms` on and before `end_ms`, where 0 means no bound.

    After `max_firings` acknowledged firings it is completed; 0 means any number. Raises ValueError when a number is out
    of range, or when the schedule would never fire.
    """

    kind: Kind
    jitter_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    max_firings: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.kind, IntervalGrid):
            _check_interval(self.kind)
        if not 0 <= self.jitter_ms <= MAX_JITTER_MS:
            raise ValueError(f"jitter must be 0 to {MAX_JITTER_MS} ms, is {self.jitter_ms} ms")
        if not 0 <= self.max_firings <= MAX_FIRINGS:
            raise ValueError(f"the number of firings must be 0 to {MAX_FIRINGS}, is {self.max_firings}")
        if not (0 <= self.start_ms <= LAST_MS and 0 <= self.end_ms <= LAST_MS):
            raise ValueError("start and end must be between 1970 and 9999")
        if not isinstance(self.kind, OnEvent | Delay) and not self.unknown_zone and self.first(0) is None:
            raise ValueError("the schedule has no time between its start and its end")

    @classmethod
    def once(cls, at_ms: int) -> Self:
        """Return the schedule that fires at `at_ms` and never again."""
        return cls(Once(at_ms))

    @classmethod
    def every(cls, interval_ms: int, anchor_ms: int) -> Self:
        """Return the schedule that fires first at `anchor_ms`, then every `interval_ms` (at least 1)."""
        return cls(IntervalGrid(interval_ms, anchor_ms))

    @classmethod
    def cron(cls, expression: str, zone: str = "UTC") -> Self:
        """Return the schedule of a cron expression in a time zone. Raises ValueError, whose text is for people."""
        return cls(CronGrid(expression, zone))

    @property
    def unknown_zone(self) -> str:
        """Its time zone if that is not known here, so that its times cannot be computed; otherwise ""."""
        return self.kind.zone if isinstance(self.kind, CronGrid) and not self.kind.known else ""

    @property
    def repeats(self) -> bool:
        """Whether the schedule may fire more than once, at times of its own."""
        return isinstance(self.kind, IntervalGrid | CronGrid | TimesGrid)

    @property
    def event(self) -> OnEvent | None:
        """The events that the schedule fires for, None when it fires at times."""
        return self.kind if isinstance(self.kind, OnEvent) else None

    @property
    def interval_ms(self) -> int:
        """The interval between two firings, 0 when it is not fixed."""
        return self.kind.interval_ms if isinstance(self.kind, IntervalGrid) else 0

    @property
    def needs_next(self) -> bool:
        """Whether an acknowledgement must carry the next planned time because the store cannot compute it."""
        return isinstance(self.kind, CronGrid | TimesGrid)

    @property
    def begins_now(self) -> bool:
        """Whether the first time depends on when the schedule begins."""
        return isinstance(self.kind, Delay) or (isinstance(self.kind, CronGrid) and not self.start_ms)

    @property
    def last_ms(self) -> int:
        """The last time that can be planned."""
        return self.end_ms - 1 if self.end_ms else LAST_MS

    def first(self, now_ms: int) -> int | None:
        """Return the first planned time of a schedule that begins now, None when all have passed.

        Single times and grids begin at the time they name, past or not; a cron schedule begins at its start, or now. A
        schedule that fires for events has no planned time: None.
        """
        if isinstance(self.kind, OnEvent):
            return None
        if isinstance(self.kind, Delay):
            planned_ms = now_ms + self.kind.delay_ms
            return planned_ms if self.start_ms <= planned_ms <= self.last_ms else None
        return self._windowed().after(now_ms if self.begins_now else -1)

    def next_after(self, planned_ms: int, now_ms: int) -> int | None:
        """Return the first planned time that is after both `planned_ms` and `now_ms`, None when there is none.

        Times missed in between are skipped. An interval counts from `planned_ms`.
        """
        next_ms: int | None = None
        if self.interval_ms:
            missed = max(0, (now_ms - planned_ms) // self.interval_ms)
            next_ms = planned_ms + (missed + 1) * self.interval_ms
        elif self.repeats:
            next_ms = self._windowed().after(max(planned_ms, now_ms))
        return next_ms if next_ms is not None and next_ms <= self.last_ms else None

    def following(self, planned_ms: int, now_ms: int) -> int | None:
        """Return the planned time after one that was handled at `now_ms`, None when there is none.

        Times that have passed since are skipped, but not one whose jitter may still delay its delivery.
        """
        return self.next_after(planned_ms, now_ms - self.jitter_ms)

    def first_ahead(self, trigger_id: str, planned_ms: int, now_ms: int) -> int | None:
        """Return the first planned time, from `planned_ms` on, whose delivery is ahead; None when there is none."""
        ahead: int | None = planned_ms
        while ahead is not None and self.delivery_ms(trigger_id, ahead) <= now_ms:
            ahead = self.following(ahead, now_ms)
        return ahead

    def delivery_ms(self, trigger_id: str, planned_ms: int) -> int:
        """Return when a planned time is to be delivered: always the same for a trigger and time, on every machine."""
        return planned_ms + delay_ms(trigger_id, planned_ms, self.jitter_ms)

    def _windowed(self) -> Windowed:
        match self.kind:
            case Once(at_ms):
                return Windowed(TimesGrid((at_ms,)), self.start_ms, self.end_ms)
            case IntervalGrid() | CronGrid() | TimesGrid():
                return Windowed(self.kind, self.start_ms, self.end_ms)
        raise TypeError(f"{self.kind} has no planned times of its own")


def _check_interval(grid: IntervalGrid) -> None:
    if not 0 <= grid.anchor_ms <= LAST_MS:
        raise ValueError(f"a time must be between 1970 and 9999, is {grid.anchor_ms} ms since 1970")
    if grid.interval_ms > LAST_MS:
        raise ValueError(f"an interval must be 1 to {LAST_MS} ms, is {grid.interval_ms} ms")
