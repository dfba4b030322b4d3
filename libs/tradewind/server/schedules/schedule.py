"""A grid within a window, and what to do about planned times that have passed."""

from dataclasses import dataclass

import msgspec

from tradewind.server.schedules.grids import Grid


@dataclass(frozen=True, slots=True)
class Schedule:
    """The planned times of a grid from `start_ms` on and before `end_ms`; 0 means no bound."""

    grid: Grid
    start_ms: int = 0
    end_ms: int = 0

    def after(self, moment_ms: int) -> int | None:
        """Return the first planned time after a moment; None when there is none."""
        planned = self.grid.after(max(moment_ms, self.start_ms - 1))
        return None if planned is None or (self.end_ms and planned >= self.end_ms) else planned

    def up_to(self, moment_ms: int) -> int | None:
        """Return the last planned time at or before a moment; None when there is none."""
        planned = self.grid.up_to(min(moment_ms, self.end_ms - 1) if self.end_ms else moment_ms)
        return None if planned is None or planned < self.start_ms else planned

    def span(self, after_ms: int, before_ms: int) -> "Span | None":
        """Return the planned times after one moment and before another; None when there are none."""
        first, last = self.after(after_ms), self.up_to(before_ms - 1)
        if first is None or last is None or last < first:
            return None
        return Span(first, last, self.grid.between(first - 1, last))


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive planned times: the first, the last and how many; 10 000 also stands for more."""

    first_ms: int
    last_ms: int
    count: int


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What to do about a planned time that is due: which time fires, which is due next, and which were missed.

    `fire_ms` is None when none fires any more, `next_ms` when none follows.
    """

    fire_ms: int | None
    next_ms: int | None
    missed: Span | None = None


def catch_up(
    schedule: Schedule, due_ms: int, now_ms: int, window_ms: int, *, jitter_ms: int = 0, fire_all: bool = False
) -> Verdict:
    """Decide about a planned time that is due, given that it may be late and that others may have passed since.

    A time has passed when the longest delay by jitter has, too: until then, its own delay may still be ahead. One that
    passed more than `window_ms` ago does not fire. Of the remaining times, the latest that has passed fires; with
    `fire_all` the earliest fires now, and the next is due at once.
    """
    passed_ms = now_ms - jitter_ms
    oldest_ms = passed_ms - window_ms
    if fire_all:
        fire_ms = due_ms if due_ms >= oldest_ms else schedule.after(oldest_ms - 1)
        if fire_ms is None:
            return Verdict(None, None, schedule.span(due_ms - 1, passed_ms + 1))
        if fire_ms > passed_ms and fire_ms != due_ms:
            return Verdict(None, fire_ms, schedule.span(due_ms - 1, fire_ms))
    else:
        fire_ms = max(due_ms, schedule.up_to(passed_ms) or 0)
        if fire_ms < oldest_ms:
            return Verdict(None, schedule.after(passed_ms), schedule.span(due_ms - 1, passed_ms + 1))
    return Verdict(fire_ms, schedule.after(fire_ms), schedule.span(due_ms - 1, fire_ms))
