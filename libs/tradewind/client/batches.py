"""Batches: many runs of one node type that belong together, and their progress."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.node_task_manager.v1 import batch_pb2
from tradewind.client.wire import Members, moment


class BatchStatus(StrEnum):
    """The status of a batch; completed, partial, failed and cancelled are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """Whether it is final."""
        return self not in (BatchStatus.QUEUED, BatchStatus.RUNNING, BatchStatus.UNKNOWN)


_STATUSES = Members(batch_pb2.BatchStatus, BatchStatus)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How many items have each status at one moment; queued, running, completed, failed, cancelled make up `total`."""

    total: int
    queued: int
    running: int
    completed: int
    failed: int
    cancelled: int
    percent: float
    """Share of items that have ended, 0 to 100."""
    cached: int = 0
    """How many completed items did not run, because their outputs were in a cache."""

    @property
    def ended(self) -> int:
        """How many items have ended."""
        return self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch on record."""

    batch_id: str
    user_id: str
    node_type: str
    status: BatchStatus
    progress: BatchProgress
    stop_reason: str
    stop_by: str
    submitted_at: datetime | None
    finished_at: datetime | None
    reason: str = ""
    """Why its items wait; only from get_batch."""

    @property
    def ended(self) -> bool:
        """Whether all of its items have ended."""
        return self.status.ended

    @property
    def seconds(self) -> float | None:
        """How long it took from submission to end; None before it has ended."""
        if self.submitted_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.submitted_at).total_seconds()


def batch_from(message: batch_pb2.Batch, reason: str = "") -> BatchRecord:
    """Read a batch."""
    progress = message.progress
    return BatchRecord(
        batch_id=message.batch_id,
        user_id=message.user_id,
        node_type=message.node_type,
        status=_STATUSES[message.status],
        progress=BatchProgress(
            total=progress.total,
            queued=progress.queued,
            running=progress.running,
            completed=progress.completed,
            failed=progress.failed,
            cancelled=progress.cancelled,
            percent=progress.percent,
            cached=progress.cached,
        ),
        stop_reason=message.stop.reason,
        stop_by=message.stop.by,
        submitted_at=moment(message, "submitted_at"),
        finished_at=moment(message, "finished_at"),
        reason=reason,
    )
