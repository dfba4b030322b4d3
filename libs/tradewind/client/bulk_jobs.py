"""Bulk jobs: one action on many cycles, on record."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.scheduler.v1 import job_pb2
from tradewind.client.wire import Members, moment


class BulkAction(StrEnum):
    """What a job does to each cycle."""

    RERUN = "rerun"
    STOP = "stop"
    UNKNOWN = "unknown"


class BulkJobStatus(StrEnum):
    """The status of a job; all but running are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BulkItem:
    """A cycle that a job matched; `error_reason` and `error_message` say why the action failed for it."""

    flow_id: str
    cycle: int
    run: int
    error_reason: str
    error_message: str


@dataclass(frozen=True, slots=True)
class BulkJob:
    """A job on record: of the `matched` cycles, how many are `done` and for how many it `failed`.

    `items` are the first 100 cycles that it failed for, or in a dry run the first 100 that matched.
    """

    job_id: str
    action: BulkAction
    flow_ids: tuple[str, ...]
    dry_run: bool
    status: BulkJobStatus
    matched: int
    done: int
    failed: int
    items: tuple[BulkItem, ...]
    by: str
    reason: str
    created_at: datetime | None
    ended_at: datetime | None

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status not in (BulkJobStatus.RUNNING, BulkJobStatus.UNKNOWN)


_ACTIONS = Members(job_pb2.BulkAction, BulkAction)
_STATUSES = Members(job_pb2.BulkJobStatus, BulkJobStatus)


def job_from(message: job_pb2.BulkJob) -> BulkJob:
    """Read a job."""
    return BulkJob(
        message.job_id,
        _ACTIONS[message.action],
        tuple(message.filter.flow_ids),
        message.dry_run,
        _STATUSES[message.status],
        message.matched,
        message.done,
        message.failed,
        tuple(
            BulkItem(item.flow_id, item.cycle, item.run, item.error_reason, item.error_message)
            for item in message.items
        ),
        message.by,
        message.reason,
        moment(message, "created_at"),
        moment(message, "ended_at"),
    )
