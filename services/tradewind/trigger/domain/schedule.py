"""When a trigger fires: once, or again and again on an anchored grid. Whole milliseconds of the epoch, UTC."""

from dataclasses import dataclass

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: nothing is planned after it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Fires at `anchor_ms` and, when `interval_ms` is not 0, at every anchor + k * interval after it.

    Raises ValueError when a time is out of range.
    """

    anchor_ms: int
    interval_ms: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.anchor_ms <= LAST_MS:
            raise ValueError(f"a time must lie between 1970 and 9999, not at {self.anchor_ms} ms")
        if not 0 <= self.interval_ms <= LAST_MS:
            raise ValueError(
                f"an interval must be at least 1 ms and end before the year 9999, not {self.interval_ms} ms"
            )

    @classmethod
    def once(cls, at_ms: int) -> "Schedule":
        """Return the schedule that fires at `at_ms` and never again."""
        return cls(at_ms)

    @classmethod
    def every(cls, interval_ms: int, anchor_ms: int) -> "Schedule":
        """Return the schedule that fires first at `anchor_ms`, then every `interval_ms` (at least 1)."""
        if interval_ms < 1:
            raise ValueError(f"an interval must be at least 1 ms, not {interval_ms} ms")
        return cls(anchor_ms, interval_ms)

    @property
    def repeats(self) -> bool:
        """Whether it fires more than once."""
        return self.interval_ms > 0

    def following(self, planned_ms: int, now_ms: int) -> int | None:
        """Return the planned time after `planned_ms`: the first one on its grid that lies after `now_ms`, too.

        Ticks missed in between are passed over. None when nothing follows.
        """
        if not self.repeats:
            return None
        missed = max(0, (now_ms - planned_ms) // self.interval_ms)
        following = planned_ms + (missed + 1) * self.interval_ms
        return following if following <= LAST_MS else None
