"""Maps between Protobuf and the domain: notifications and events of tasks."""

from collections.abc import Iterable, Iterator

from tradewind.api.node_task_manager.v1 import batch_pb2, notification_pb2, task_event_pb2
from tradewind.node_task_manager.domain.names import BATCH, TASK, RunName
from tradewind.node_task_manager.domain.notification import Fact, Notification, NotificationKind, Severity
from tradewind.node_task_manager.domain.task_event import TaskEvent
from tradewind.node_task_manager.rpc.checks import STREAM_POSITION
from tradewind.node_task_manager.rpc.mapping import node_task, task_error
from tradewind.node_task_manager.rpc.stop_mapping import stop_mark
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.node_task_manager.use_cases.watch_task import TaskChange
from tradewind.server.all_faults import require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier

_MAX_SENT = 100
_MAX_TITLE, _MAX_MESSAGE, _MAX_KEY = 200, 4096, 128
_SENT = {
    notification_pb2.NOTIFICATION_KIND_UNSPECIFIED: NotificationKind.SYSTEM_NOTIFICATION,
    notification_pb2.NOTIFICATION_KIND_SYSTEM_NOTIFICATION: NotificationKind.SYSTEM_NOTIFICATION,
    notification_pb2.NOTIFICATION_KIND_FLOW_STOPPED: NotificationKind.FLOW_STOPPED,
    notification_pb2.NOTIFICATION_KIND_FLOW_PAUSED: NotificationKind.FLOW_PAUSED,
}
_SEVERITIES: dict[int, Severity] = {
    notification_pb2.Severity.Value(f"SEVERITY_{each.upper()}"): each for each in Severity
}


def check_position(path: str, position: str) -> None:
    """Raise InvalidInput unless this is a position in a stream, or empty."""
    if position and not STREAM_POSITION.fullmatch(position):
        raise InvalidInput(
            [Violation(path, "is not a position in this stream; pass one exactly as received, or leave it empty")]
        )


def task_change(change: TaskChange) -> batch_pb2.WatchTaskResponse:
    """Return a task with what happened to it."""
    event = _task_event(change.event) if change.event is not None else None
    return batch_pb2.WatchTaskResponse(task=node_task(change.view), event=event, gap=change.gap)


def _task_event(event: TaskEvent) -> task_event_pb2.TaskEvent:
    return task_event_pb2.TaskEvent(
        event_id=event.event_id,
        kind=task_event_pb2.TaskEventKind.Value(f"TASK_EVENT_KIND_{event.kind.upper()}"),
        created_at=timestamp(event.at),
        attempt=event.attempt,
        worker_id=event.worker_id,
        progress=event.progress,
        message=event.message,
        current_step=event.step,
        reason=event.reason,
        error=task_error(event.error),
        retry_at=timestamp(event.retry_at),
        stop=stop_mark(event.stop),
    )


def notifications(user_id: str, found: Iterable[Notification]) -> list[notification_pb2.Notification]:
    """Return notifications as their user reads them."""
    return [
        notification_pb2.Notification(
            notification_id=each.notification_id,
            user_id=user_id,
            kind=notification_pb2.NotificationKind.Value(f"NOTIFICATION_KIND_{each.fact.kind.upper()}"),
            severity=notification_pb2.Severity.Value(f"SEVERITY_{each.severity.upper()}"),
            title=each.title,
            message=each.message,
            subject=_subject(each.fact.subject),
            created_at=timestamp(each.fact.at),
            read=each.read,
        )
        for each in found
    ]


def _subject(name: str) -> notification_pb2.NotificationSubject:
    parts = name.split(":")
    if name.startswith(TASK):
        return notification_pb2.NotificationSubject(node_task_id=name)
    if name.startswith(BATCH):
        return notification_pb2.NotificationSubject(batch_id=parts[1], node_task_id=name if len(parts) == 3 else "")
    if len(parts) == 1:
        return notification_pb2.NotificationSubject(flow_id=name)
    task_id = name if len(parts) > 3 else ""
    return notification_pb2.NotificationSubject(
        flow_id=parts[0], cycle=int(parts[1]), run=int(parts[2]), node_task_id=task_id
    )


def facts(drafts: notification_pb2.PublishNotificationsRequest) -> list[tuple[str, str, Fact]]:
    """Parse the notifications to send: user, key, fact. Raises InvalidInput with every fault."""
    count = len(drafts.notifications)
    if not 1 <= count <= _MAX_SENT:
        raise InvalidInput([Violation("notifications", f"must be 1 to {_MAX_SENT}, there are {count}")])
    require(fault for at, draft in enumerate(drafts.notifications) for fault in _faults(f"notifications[{at}].", draft))
    return [(draft.user_id, draft.key, _fact(draft)) for draft in drafts.notifications]


def _fact(draft: notification_pb2.NotificationDraft) -> Fact:
    about = draft.subject
    subject = str(RunName(about.flow_id, about.cycle, about.run)) if about.HasField("cycle") else about.flow_id
    severity = _SEVERITIES.get(draft.severity, Severity.INFO)
    return Fact(_SENT[draft.kind], subject, title=draft.title, message=draft.message, severity=severity)


def _faults(path: str, draft: notification_pb2.NotificationDraft) -> Iterator[Violation]:
    about = draft.subject
    for name, value, needed in (("user_id", draft.user_id, True), ("subject.flow_id", about.flow_id, False)):
        fault = check_identifier(path + name, value) if value or needed else None
        if fault is not None:
            yield fault
    if draft.kind not in _SENT:
        yield Violation(f"{path}kind", "must be FLOW_STOPPED, FLOW_PAUSED or SYSTEM_NOTIFICATION, or unset")
    if not 1 <= len(draft.title) <= _MAX_TITLE or "\n" in draft.title:
        yield Violation(f"{path}title", f"must be one line of 1 to {_MAX_TITLE} characters")
    if len(draft.message.encode()) > _MAX_MESSAGE:
        yield Violation(f"{path}message", f"must have at most {_MAX_MESSAGE // 1024} KiB")
    if len(draft.key) > _MAX_KEY:
        yield Violation(f"{path}key", f"must have at most {_MAX_KEY} characters")
    if about.node_task_id or about.batch_id:
        yield Violation(f"{path}subject", "must be a flow or a cycle: tasks and batches send their own notifications")
    if about.HasField("cycle") and (not about.flow_id or about.cycle < 0 or about.run < 0):
        yield Violation(f"{path}subject.cycle", "needs flow_id; cycle and run must be 0 or more")
