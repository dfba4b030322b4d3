"""Batches: many runs of one node type that belong together, and their progress."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tradewind.node_task_manager.domain.component import Component, ComponentStatus

NO_PARTITION = -1
"""The partition of runs that belong to no scheduler."""
ONLY_COMPONENT = "0"
"""The component that an ad-hoc run consists of."""
MAX_ITEMS = 10_000


class BatchStatus(StrEnum):
    """Where a batch stands; the last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether no other status can follow."""
        return self not in (BatchStatus.QUEUED, BatchStatus.RUNNING)


class Deletion(StrEnum):
    """Answer to a request to delete a batch: an open one stays, and a user may have no such batch."""

    DELETED = "deleted"
    OPEN = "open"
    UNKNOWN = "unknown"


def place_of_item(node_id: str) -> int | None:
    """Return the place of the item of a batch, or of the node of an ad-hoc task (""); None for other ids of nodes."""
    if node_id.isdecimal() and str(int(node_id)) == node_id:
        return int(node_id)
    return None if node_id else 0


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Counts of a batch's items at one moment; all but `cached` add up to `total`.

    `cached` of the completed items did not run, since their outputs were in a cache.
    """

    total: int
    queued: int
    running: int
    completed: int
    failed: int
    cancelled: int
    cached: int = 0

    @classmethod
    def of(cls, component: Component) -> Self:
        """Derive the progress from the counts of the batch's component."""
        return cls(
            total=component.nodes,
            queued=component.open - component.running,
            running=component.running,
            completed=component.completed,
            failed=component.failed,
            cancelled=component.terminated + component.skipped,
            cached=component.cached,
        )

    @property
    def ended(self) -> int:
        """How many items are final."""
        return self.completed + self.failed + self.cancelled

    @property
    def percent(self) -> float:
        """Percentage of items that are final, rounded down to two decimals: 100 only when all are."""
        return self.ended * 10_000 // self.total / 100 if self.total else 0.0


def batch_status(component: Component) -> BatchStatus:
    """Return the status of the batch that a component belongs to."""
    progress = BatchProgress.of(component)
    if component.status is not ComponentStatus.FINISHED:
        return BatchStatus.RUNNING if progress.running or progress.ended else BatchStatus.QUEUED
    return ended_batch_status(
        progress.total, progress.completed, progress.failed, progress.cancelled, stopped=component.stop is not None
    )


def ended_batch_status(total: int, completed: int, failed: int, cancelled: int, *, stopped: bool) -> BatchStatus:
    """Return the status of a batch that has ended, from the counts of its items and whether it was `stopped`."""
    if completed == total:
        return BatchStatus.COMPLETED
    if cancelled and stopped:
        return BatchStatus.CANCELLED
    if completed:
        return BatchStatus.PARTIAL
    return BatchStatus.FAILED if failed else BatchStatus.CANCELLED
