"""Notifications: messages to users."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.node_task_manager.v1 import notification_pb2
from tradewind.client.wire import Members, moment


class NotificationKind(StrEnum):
    """What a notification is about."""

    TASK_COMPLETED = "task_completed"
    TASK_FAILED = "task_failed"
    TASK_CANCELLED = "task_cancelled"
    BATCH_FINISHED = "batch_finished"
    DEAD_LETTER = "dead_letter"
    CYCLE_FAILED = "cycle_failed"
    FLOW_STOPPED = "flow_stopped"
    FLOW_PAUSED = "flow_paused"
    SYSTEM_NOTIFICATION = "system_notification"
    ANSWER_WANTED = "answer_wanted"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """How much a notification matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


_KINDS = Members(notification_pb2.NotificationKind, NotificationKind)
_SEVERITIES = Members(notification_pb2.Severity, Severity)


@dataclass(frozen=True, slots=True)
class Notification:
    """A message to a user; the ids say what it is about, and are "" (`cycle` None) if they do not apply.

    `read` is set only when notifications are listed. With `gap`, some before this one are missing.
    """

    notification_id: str
    user_id: str
    kind: NotificationKind
    severity: Severity
    title: str
    message: str
    node_task_id: str
    batch_id: str
    flow_id: str
    cycle: int | None
    run: int
    created_at: datetime | None
    read: bool = False
    gap: bool = False

    def __str__(self) -> str:
        return f"{self.title}: {self.message}" if self.message else self.title


def notification_from(message: notification_pb2.Notification, *, gap: bool = False) -> Notification:
    """Read a notification."""
    subject = message.subject
    return Notification(
        notification_id=message.notification_id,
        user_id=message.user_id,
        kind=_KINDS[message.kind],
        severity=_SEVERITIES[message.severity],
        title=message.title,
        message=message.message,
        node_task_id=subject.node_task_id,
        batch_id=subject.batch_id,
        flow_id=subject.flow_id,
        cycle=subject.cycle if subject.HasField("cycle") else None,
        run=subject.run,
        created_at=moment(message, "created_at"),
        read=message.read,
        gap=gap,
    )
