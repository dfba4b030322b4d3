"""A backfill: the planned times of a past range, carried out a few at a time."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.schedules.grids import MAX_COUNT, IntervalGrid

MAX_TIMES = 10_000
"""The most planned times that a backfill may have."""
MAX_RUNNING = 50
"""The most cycles of a backfill that may run at once."""
MAX_ACTIVE = 5
"""The most backfills of a flow that may be under way."""


class BackfillStatus(StrEnum):
    """Where a backfill stands; all but `running` are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BackfillDraft:
    """A backfill as requested: the `times` planned times of a grid from `first_ms` to `last_ms`, within [from, to).

    `schedule` holds only the grid; the grid of an interval is anchored at `anchor_ms`.
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

    `position_ms` is the planned time to begin next, 0 when none is left. The counts are of planned times: `begun` have
    begun a cycle, and `skipped` had one already (`expired` of those cycles are no longer on record). Of the cycles that
    have begun, `running` are running, `completed` have completed, and `failed` have not.
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
        """How many planned times are still to come."""
        return self.draft.times - self.begun - self.skipped

    def steps(self) -> "list[BackfillStep]":
        """Return the steps that may begin now, in order."""
        planned = self.draft.schedule.planned(self.draft.anchor_ms)
        steps: list[BackfillStep] = []
        position_ms = self.position_ms
        while position_ms and len(steps) < self.draft.max_running - self.running:
            following_ms = planned.after(position_ms) or 0
            following_ms = following_ms if following_ms <= self.draft.last_ms else 0
            steps.append(BackfillStep(self.backfill_id, position_ms, following_ms, self.created_ms))
            position_ms = following_ms
        return steps


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """A request to begin the cycle planned at a backfill's position, and to move the position on to the next time.

    `created_ms` is when the backfill was created.
    """

    backfill_id: int
    position_ms: int = 0
    following_ms: int = 0
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class PastTimes:
    """The planned times of a range: grid, first, last and count; unless `exact`, there are more than `count`."""

    schedule: ScheduleDefinition
    anchor_ms: int
    first_ms: int
    last_ms: int
    count: int
    exact: bool = True


def past_times(schedule: ScheduleDefinition, flow_anchor_ms: int, from_ms: int, to_ms: int) -> PastTimes | None:
    """Return the planned times from `from_ms` on and before `to_ms`, None when there are none.

    Only the grid counts: the schedule's window and its limit on cycles do not apply. The grid of an interval extends
    back before the moment at which the flow was started, `flow_anchor_ms` (0 or below for none).
    """
    bare = ScheduleDefinition(
        interval_ms=schedule.interval_ms, cron=schedule.cron, zone=schedule.zone, times_ms=schedule.times_ms
    )
    anchor_ms = from_ms
    if schedule.interval_ms:
        anchor_ms = schedule.start_ms or max(flow_anchor_ms, 0) or from_ms
        # The anchor is moved close to 0 so that `from_ms` is never before it.
        anchor_ms %= schedule.interval_ms
    grid = bare.planned(anchor_ms).grid
    first_ms, last_ms = grid.after(from_ms - 1), grid.up_to(to_ms - 1)
    if first_ms is None or last_ms is None or last_ms < first_ms:
        return None
    if isinstance(grid, IntervalGrid):
        return PastTimes(bare, anchor_ms, first_ms, last_ms, (last_ms - first_ms) // schedule.interval_ms + 1)
    later = grid.between(first_ms, last_ms)
    return PastTimes(bare, anchor_ms, first_ms, last_ms, later + 1, exact=later < MAX_COUNT)


class BackfillOutcome(StrEnum):
    """The outcome of a request for a backfill."""

    CREATED = "created"
    REPEATED = "repeated"
    REUSED = "reused"
    NOT_FOUND = "not_found"
    DELETING = "deleting"
    FULL = "full"
