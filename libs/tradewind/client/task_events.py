"""Events of node tasks."""

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum

from tradewind.api.node_task_manager.v1 import batch_pb2, task_event_pb2
from tradewind.client.node_tasks import NodeTaskRecord, node_task_from
from tradewind.client.wire import Members, moment


class TaskEventKind(StrEnum):
    """What happened to a task; completed, failed, terminated and skipped are final."""

    QUEUED = "queued"
    RUNNING = "running"
    PROGRESS = "progress"
    STOPPING = "stopping"
    RETRYING = "retrying"
    WAITING = "waiting"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    TERMINATED = "terminated"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


_KINDS = Members(task_event_pb2.TaskEventKind, TaskEventKind)


@dataclass(frozen=True, slots=True)
class WatchedTask(NodeTaskRecord):
    """A node task as it was after the event `happened`, which is None for its present state.

    Watch again after `event_id` to continue from here. With `gap`, events before this one are missing.
    """

    happened: TaskEventKind | None = None
    happened_at: datetime | None = None
    event_id: str = ""
    gap: bool = False


def watched_task_from(response: batch_pb2.WatchTaskResponse) -> WatchedTask:
    """Read a task and the event that happened to it."""
    record = node_task_from(response.task)
    known = {each.name: getattr(record, each.name) for each in fields(record)}
    if not response.HasField("event"):
        return WatchedTask(**known, gap=response.gap)
    return WatchedTask(
        **known,
        happened=_KINDS[response.event.kind],
        happened_at=moment(response.event, "created_at"),
        event_id=response.event.event_id,
        gap=response.gap,
    )
