"""Backfills: runs of flows for past ranges of time, a few cycles at a time."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.scheduler.v1 import backfill_pb2
from tradewind.client.wire import Members, moment


class BackfillStatus(StrEnum):
    """The status of a backfill; all but running are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """A backfill of the `times` planned times from `start` on and before `end`; `position` is the next to begin.

    `begun` counts the times whose cycle it began, `skipped` the times that already had a cycle, and `expired` the
    skipped times whose cycle is no longer on record. `running`, `completed` and `failed` count its cycles.
    """

    flow_id: str
    backfill_id: int
    status: BackfillStatus
    start: datetime | None
    end: datetime | None
    position: datetime | None
    max_running: int
    times: int
    begun: int
    skipped: int
    running: int
    completed: int
    failed: int
    by: str
    created_at: datetime | None
    ended_at: datetime | None
    reason: str
    expired: int = 0

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status not in (BackfillStatus.RUNNING, BackfillStatus.UNKNOWN)


_STATUSES = Members(backfill_pb2.BackfillStatus, BackfillStatus)


def backfill_from(message: backfill_pb2.Backfill) -> BackfillRecord:
    """Read a backfill."""
    return BackfillRecord(
        flow_id=message.flow_id,
        backfill_id=message.backfill_id,
        status=_STATUSES[message.status],
        start=moment(message, "start"),
        end=moment(message, "end"),
        position=moment(message, "position"),
        max_running=message.max_running,
        times=message.times,
        begun=message.begun,
        skipped=message.skipped,
        running=message.running,
        completed=message.completed,
        failed=message.failed,
        by=message.by,
        created_at=moment(message, "created_at"),
        ended_at=moment(message, "ended_at"),
        reason=message.reason,
        expired=message.expired,
    )
