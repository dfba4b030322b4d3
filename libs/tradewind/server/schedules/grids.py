"""Grids: endless rows of planned times, of which a schedule takes those within its window."""

import bisect
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tradewind.server.faults import InvalidInput, Violation

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: nothing is planned after it."""

MAX_COUNT = 10_000
"""Up to this number, the times between two moments are counted one by one; a greater number is reported as this one."""

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAY_MS = 24 * 3_600_000
# Moments are naive datetimes in UTC: cronsim is not told about zones, because it loops forever in some of them.
_EPOCH = datetime(1970, 1, 1)
_NOTHING = timedelta()
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_WEEK = timedelta(weeks=1)


class UnknownZone(InvalidInput):
    """What is on record is in a time zone that a replica with newer tzdata has accepted, and this one does not know."""

    def __init__(self, zone: str) -> None:
        message = (
            f'"{zone}" is a time zone that this server does not know; update tzdata on its machine, and restart it'
        )
        super().__init__([Violation("time_zone", message)])


class Grid(Protocol):
    """Planned times in ascending order."""

    def after(self, moment_ms: int) -> int | None:
        """Return the first planned time after a moment; None when there is none up to the year 9999."""
        ...

    def up_to(self, moment_ms: int) -> int | None:
        """Return the last planned time at or before a moment; None when there is none."""
        ...

    def between(self, after_ms: int, up_to_ms: int) -> int:
        """Return how many planned times lie after one moment and not after another; 10 000 also stands for more."""
        ...


@dataclass(frozen=True, slots=True)
class IntervalGrid:
    """anchor + k * interval for every k from 0 on, exactly: delays never add up.

    Raises ValueError for an interval below 1 ms.
    """

    interval_ms: int
    anchor_ms: int

    def __post_init__(self) -> None:
        if self.interval_ms < 1:
            raise ValueError(f"an interval must be at least 1 ms, not {self.interval_ms} ms")

    def after(self, moment_ms: int) -> int | None:
        steps = max(0, (moment_ms - self.anchor_ms) // self.interval_ms + 1)
        following = self.anchor_ms + steps * self.interval_ms
        return following if following <= LAST_MS else None

    def up_to(self, moment_ms: int) -> int | None:
        steps = (moment_ms - self.anchor_ms) // self.interval_ms
        return self.anchor_ms + steps * self.interval_ms if steps >= 0 else None

    def between(self, after_ms: int, up_to_ms: int) -> int:
        first, last = self.after(after_ms), self.up_to(up_to_ms)
        if first is None or last is None or last < first:
            return 0
        return min(MAX_COUNT, (last - first) // self.interval_ms + 1)


@dataclass(frozen=True, slots=True)
class CronGrid:
    """A cron expression in a time zone: minute, hour, day, month and weekday, optionally with seconds in front.

    An expression with a name may be given by it, such as `@daily`; `expression` is then what the name stands for.

    Where clocks are put forward, a time of day that does not exist is planned for the moment of the change; where they
    are put back, one that occurs twice is planned only the first time. An expression whose minutes or hours begin with
    `*` goes by elapsed time through both changes, as Debian's cron does. A day of month and a weekday, when both are
    given, are alternatives. Raises ValueError, whose text is for people.

    One that is `on_record` may be in a time zone that is not `known` here; whoever asks it for times gets UnknownZone.
    """

    expression: str
    zone: str = "UTC"
    on_record: InitVar[bool] = False
    _zone: ZoneInfo | None = field(init=False, repr=False, compare=False)
    _uses_elapsed_time: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self, on_record: bool) -> None:
        try:
            object.__setattr__(self, "_zone", read_zone(self.zone))
        except ValueError:
            if not on_record:
                raise
            object.__setattr__(self, "_zone", None)
        object.__setattr__(self, "expression", _NICKNAMES.get(self.expression.strip().lower(), self.expression))
        try:
            CronSim(self.expression, _EPOCH)
        except CronSimError as error:
            raise ValueError(
                f'cannot read "{self.expression}" as cron ({error}); {_advice(self.expression)}'
            ) from error
        minutes, hours = self.expression.split()[-5:-3]
        object.__setattr__(self, "_uses_elapsed_time", "*" in (minutes[0], hours[0]))
        if self.known and self.after(0) is None:
            raise ValueError(f'"{self.expression}" never occurs')

    @property
    def known(self) -> bool:
        """Whether its time zone is known here."""
        return self._zone is not None

    def after(self, moment_ms: int) -> int | None:
        return next(self._from(moment_ms), None)

    def up_to(self, moment_ms: int) -> int | None:
        # A search back from one second later includes the moment. On the very last day, not every zone has a date.
        start_s = min(moment_ms, LAST_MS - _DAY_MS) // 1000 + 1
        found = next(filter(moment_ms.__ge__, self._times(start_s, reverse=True)), None)
        if found is None or found < 0:
            return None
        # Where clocks were put back, times of day still ahead by the clock may have passed: those come after `found`.
        return max(takewhile(lambda each_ms: each_ms <= moment_ms, self._from(found)), default=found)

    def between(self, after_ms: int, up_to_ms: int) -> int:
        planned = takewhile(lambda each_ms: each_ms <= up_to_ms, self._from(after_ms))
        return sum(1 for _ in islice(planned, MAX_COUNT))

    def _from(self, moment_ms: int) -> Iterator[int]:
        for planned_ms in self._times(moment_ms // 1000):
            # Where clocks were put back, a time of day still ahead by the clock may have passed; where they were put
            # forward, several coincide at the change.
            if planned_ms > moment_ms:
                yield planned_ms
                moment_ms = planned_ms

    def _times(self, start_s: int, *, reverse: bool = False) -> Iterator[int]:
        """Yield the planned times after a moment, or with `reverse` those before it, latest first."""
        try:
            start = _EPOCH + timedelta(seconds=start_s)
            moments = (
                self._by_elapsed_time(start, reverse)
                if self._uses_elapsed_time
                else self._by_time_of_day(start, reverse)
            )
            for moment in moments:
                yield (moment - _EPOCH) // _MILLISECOND
        except OverflowError:
            return

    def _by_time_of_day(self, start: datetime, reverse: bool) -> Iterator[datetime]:
        for local in CronSim(self.expression, start + self._offset(start), reverse=reverse):
            offset = local.replace(tzinfo=self._known_zone()).utcoffset() or _NOTHING
            then = self._offset(local - offset)
            # A time of day that does not exist is after the change by the old clocks, and before it by the new ones.
            yield self._clock_change(local - then, local - offset) or local - offset

    def _by_elapsed_time(self, start: datetime, reverse: bool) -> Iterator[datetime]:
        seen = start
        while True:
            offset = self._offset(seen)
            change = None
            for local in CronSim(self.expression, start + offset, reverse=reverse):
                planned = local - offset
                change = self._clock_change(seen, planned)
                if change is not None:
                    break
                yield planned
                seen = planned
            if change is None:
                return
            # Go on from there by the clocks on the other side.
            start, seen = (change, change - _SECOND) if reverse else (change - _SECOND, change)

    def _clock_change(self, seen: datetime, other: datetime) -> datetime | None:
        """Return the clock change between two moments that is nearest to `seen`; None when there is none."""
        step = _WEEK if seen < other else -_WEEK
        while seen != other:
            ahead = seen + step if abs(other - seen) > _WEEK else other
            early, late = sorted((seen, ahead))
            offset = self._offset(early)
            if self._offset(late) != offset:
                while late - early > _SECOND:
                    middle = early + (late - early) // _SECOND // 2 * _SECOND
                    early, late = (middle, late) if self._offset(middle) == offset else (early, middle)
                return late
            seen = ahead
        return None

    def _offset(self, moment: datetime) -> timedelta:
        zone = self._known_zone()
        return zone.fromutc(moment.replace(tzinfo=zone)).utcoffset() or _NOTHING

    def _known_zone(self) -> ZoneInfo:
        if self._zone is None:
            raise UnknownZone(self.zone)
        return self._zone


@dataclass(frozen=True, slots=True)
class TimesGrid:
    """Single times, ascending and distinct. Raises ValueError when there are none."""

    times_ms: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.times_ms:
            raise ValueError("give at least one time")
        object.__setattr__(self, "times_ms", tuple(sorted(set(self.times_ms))))

    def after(self, moment_ms: int) -> int | None:
        place = bisect.bisect_right(self.times_ms, moment_ms)
        return self.times_ms[place] if place < len(self.times_ms) else None

    def up_to(self, moment_ms: int) -> int | None:
        place = bisect.bisect_right(self.times_ms, moment_ms)
        return self.times_ms[place - 1] if place else None

    def between(self, after_ms: int, up_to_ms: int) -> int:
        first, last = (bisect.bisect_right(self.times_ms, moment) for moment in (after_ms, up_to_ms))
        return max(0, min(MAX_COUNT, last - first))


@dataclass(frozen=True, slots=True)
class EmptyGrid:
    """No planned times at all."""

    def after(self, moment_ms: int) -> int | None:
        return None

    def up_to(self, moment_ms: int) -> int | None:
        return None

    def between(self, after_ms: int, up_to_ms: int) -> int:
        return 0


def _advice(expression: str) -> str:
    """Say what to give instead of an expression that may be right elsewhere."""
    first = expression.strip().partition(" ")[0].lower()
    if first.startswith(("tz=", "cron_tz=")):
        return "give the time zone in the field that is beside it"
    if first == "@every":
        return "give an interval, which is a schedule of its own"
    if "?" in expression:
        return 'give "*" in place of "?"'
    return 'give minute, hour, day, month and weekday, such as "30 9 * * 1-5"'


def read_zone(name: str) -> ZoneInfo:
    """Return the IANA time zone with this name. Raises ValueError, whose text is for people."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f'"{name}" is not a time zone; give an IANA name such as "Europe/Berlin" or "UTC"') from error
