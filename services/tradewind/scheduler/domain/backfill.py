"""A backfill: the planned times of a past range, carried out a few at a time."""

from dataclasses import dataclass, replace
from enum import StrEnum

from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.schedules.grids import COUNTED, IntervalGrid
from tradewind.server.schedules.schedule import Schedule

MOST_TIMES = 10_000
"""So many planned times one backfill may have."""
MOST_RUNNING = 50
"""So many of its cycles may run at once."""
MOST_ACTIVE = 5
"""So many backfills of a flow may be under way."""


class BackfillStatus(StrEnum):
    """Where a backfill stands; all but `running` are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BackfillDraft:
    """What is asked for: the `times` planned times from `first_ms` to `last_ms` of a grid, within [from, to).

    `schedule` has the grid and nothing else; an interval's lies at `anchor_ms`.
    """

    flow_id: str
    from_ms: int
    to_ms: int
    first_ms: int
    last_ms: int
    times: int
    max_running: int
    schedule: ScheduleDefinition
    anchor_ms: int
    by: str
    request: RememberedRequest | None = None


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill on record. Times in epoch milliseconds, 0 for none.

    `position_ms` is the planned time to begin next, 0 when all have been. Of `times`, so many have `begun` a cycle,
    were `skipped` because one had begun before (`expired` of these cycles are on record no more), are `running`, have
    `completed`, or `failed` to.
    """

    draft: BackfillDraft
    backfill_id: int
    status: BackfillStatus
    position_ms: int
    begun: int
    skipped: int
    running: int
    completed: int
    failed: int
    created_ms: int
    ended_ms: int = 0
    reason: str = ""
    expired: int = 0

    @property
    def left(self) -> int:
        """How many planned times have not had their turn."""
        return self.draft.times - self.begun - self.skipped

    def steps(self) -> "list[BackfillStep]":
        """Return what may begin now, in order."""
        planned = self.draft.schedule.planned(self.draft.anchor_ms)
        steps: list[BackfillStep] = []
        position_ms = self.position_ms
        while position_ms and len(steps) < self.draft.max_running - self.running:
            following_ms = planned.after(position_ms) or 0
            following_ms = following_ms if following_ms <= self.draft.last_ms else 0
            steps.append(BackfillStep(self.backfill_id, position_ms, following_ms))
            position_ms = following_ms
        return steps


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """A wish to begin the cycle of a backfill that is planned at its position, and to move that on."""

    backfill_id: int
    position_ms: int = 0
    following_ms: int = 0


@dataclass(frozen=True, slots=True)
class PastTimes:
    """The planned times of a range: the grid, the first and the last, how many; `exact` unless there are more."""

    schedule: ScheduleDefinition
    anchor_ms: int
    first_ms: int
    last_ms: int
    count: int
    exact: bool = True


def past_times(schedule: ScheduleDefinition, flow_anchor_ms: int, from_ms: int, to_ms: int) -> PastTimes | None:
    """Return the planned times from one moment on and before another, None when there are none.

    They are those of the grid: windows and numbers of the schedule do not bind. An interval's goes back before the
    moment at which its flow was started, `flow_anchor_ms` (0 or below for none).
    """
    bare = ScheduleDefinition(
        interval_ms=schedule.interval_ms, cron=schedule.cron, zone=schedule.zone, times_ms=schedule.times_ms
    )
    anchor_ms = from_ms
    if schedule.interval_ms:
        anchor_ms = schedule.start_ms or max(flow_anchor_ms, 0) or from_ms
        # From 0 on, so that `from_ms` is never before it.
        anchor_ms %= schedule.interval_ms
    planned: Schedule = replace(bare.planned(anchor_ms), start_ms=0)
    span = planned.span(from_ms - 1, to_ms)
    if span is None:
        return None
    if isinstance(planned.grid, IntervalGrid):
        count = (span.last_ms - span.first_ms) // schedule.interval_ms + 1
        return PastTimes(bare, anchor_ms, span.first_ms, span.last_ms, count)
    more = planned.grid.between(span.first_ms, span.last_ms) if span.count == COUNTED else 0
    exact = more < COUNTED
    count = more + 1 if more else span.count
    return PastTimes(bare, anchor_ms, span.first_ms, span.last_ms, count, exact)


class BackfillOutcome(StrEnum):
    """What became of a wish for a backfill."""

    CREATED = "created"
    REPEATED = "repeated"
    REUSED = "reused"
    NOT_FOUND = "not_found"
    DELETING = "deleting"
    FULL = "full"
