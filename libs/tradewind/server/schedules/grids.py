"""Grids: endless rows of planned times, from which a schedule takes those within its window."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, dropwhile, takewhile
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: nothing is planned after it."""

COUNTED = 10_000
"""Times between two moments are counted one by one up to so many; of more it is said that they are at least as many."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Grid(Protocol):
    """Planned times in ascending order."""

    def after(self, moment_ms: int) -> int | None:
        """Return the first planned time after a moment, None when there is none up to the year 9999."""
        ...

    def up_to(self, moment_ms: int) -> int | None:
        """Return the last planned time at or before a moment, None when there is none."""
        ...

    def between(self, after_ms: int, up_to_ms: int) -> int:
        """Return how many planned times lie after one moment and not after another; 10 000 stands for more, too."""
        ...


@dataclass(frozen=True, slots=True)
class IntervalGrid:
    """anchor + k * interval for every k from 0 on, exactly: lateness never adds up.

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
        return min(COUNTED, (last - first) // self.interval_ms + 1)


@dataclass(frozen=True, slots=True)
class CronGrid:
    """A cron expression in a time zone: minute, hour, day, month and weekday, or these with seconds in front.

    Where clocks are put forward, a time of day that does not exist is planned for the moment of the change; where they
    are put back, one that comes twice is planned the first time only. An expression with `*` or a step in its minutes
    or hours goes by elapsed time through both, as Debian's cron does. A day of month and a weekday, when both are
    given, are alternatives. Raises ValueError, whose text is for people.
    """

    expression: str
    zone: str = "UTC"
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_zone", read_zone(self.zone))
        try:
            CronSim(self.expression, _EPOCH)
        except CronSimError as error:
            raise ValueError(
                f'cannot read "{self.expression}" as cron ({error}); '
                'give minute, hour, day, month and weekday, such as "30 9 * * 1-5"'
            ) from error
        if self.after(0) is None:
            raise ValueError(f'"{self.expression}" names no time that ever comes')

    def after(self, moment_ms: int) -> int | None:
        return next(self._from(moment_ms), None)

    def up_to(self, moment_ms: int) -> int | None:
        # One second later is the next that cron could mean; it looks at whole seconds.
        start = self._local(moment_ms - moment_ms % 1000 + 1000)
        found = next(self._times(CronSim(self.expression, start, reverse=True)), None)
        if found is None or found < 0:
            return None
        # Where clocks were put back, times of day that are still to come may have come before: they are later ones.
        return max(takewhile(lambda each_ms: each_ms <= moment_ms, self._from(found)), default=found)

    def between(self, after_ms: int, up_to_ms: int) -> int:
        for passed, planned in zip(count(), self._from(after_ms), strict=False):
            if planned > up_to_ms or passed == COUNTED:
                return passed
        return 0

    def _from(self, moment_ms: int) -> Iterator[int]:
        planned = self._times(CronSim(self.expression, self._local(moment_ms)))
        # Where clocks were put back, a time of day that is still to come may be one that has come before.
        return dropwhile(lambda each_ms: each_ms <= moment_ms, planned)

    @staticmethod
    def _times(cron: CronSim) -> Iterator[int]:
        try:
            for moment in cron:
                yield (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
        except OverflowError:
            return

    def _local(self, moment_ms: int) -> datetime:
        return (_EPOCH + timedelta(milliseconds=moment_ms)).astimezone(self._zone)


@dataclass(frozen=True, slots=True)
class TimesGrid:
    """Single times, ascending and distinct. Raises ValueError for none at all."""

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
        return max(0, min(COUNTED, last - first))


@dataclass(frozen=True, slots=True)
class EmptyGrid:
    """No planned times at all."""

    def after(self, moment_ms: int) -> int | None:
        return None

    def up_to(self, moment_ms: int) -> int | None:
        return None

    def between(self, after_ms: int, up_to_ms: int) -> int:
        return 0


def read_zone(name: str) -> ZoneInfo:
    """Return the IANA time zone of a name. Raises ValueError, whose text is for people."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f'"{name}" is no time zone; give an IANA name such as "Europe/Berlin" or "UTC"') from error
