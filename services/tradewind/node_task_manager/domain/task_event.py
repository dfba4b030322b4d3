"""Events of a node task: what happened to it, in order."""

from dataclasses import dataclass, replace
from enum import StrEnum

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, StopMark, TaskError


class TaskEventKind(StrEnum):
    """What happened; the last four are final."""

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


STATUSES = {
    TaskEventKind.QUEUED: NodeTaskStatus.PENDING,
    TaskEventKind.RUNNING: NodeTaskStatus.RUNNING,
    TaskEventKind.PROGRESS: NodeTaskStatus.RUNNING,
    TaskEventKind.STOPPING: NodeTaskStatus.RUNNING,
    TaskEventKind.RETRYING: NodeTaskStatus.PENDING,
    TaskEventKind.WAITING: NodeTaskStatus.PENDING,
    TaskEventKind.SUSPENDED: NodeTaskStatus.SUSPENDED,
    TaskEventKind.COMPLETED: NodeTaskStatus.COMPLETED,
    TaskEventKind.FAILED: NodeTaskStatus.FAILED,
    TaskEventKind.TERMINATED: NodeTaskStatus.TERMINATED,
    TaskEventKind.SKIPPED: NodeTaskStatus.SKIPPED,
}
"""The status in which each kind of event leaves its task."""


MAX_WATCHED = 100
"""The most node tasks of a component that have not ended and whose events are kept."""


class WatchOutcome(StrEnum):
    """Answer to a request to watch a node task of a flow.

    Its events were kept before, or are from now on; or it has ended, or its component is not there, or too many node
    tasks of its component are watched.
    """

    WATCHED = "watched"
    NEW = "new"
    ENDED = "ended"
    UNKNOWN = "unknown"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened at `at` (epoch ms); `event_id` is its position among the events of its task.

    The error's message is cut to 500 bytes, and there is no traceback; only progress has `progress`, `message`, `step`.
    """

    kind: TaskEventKind
    at: int
    attempt: int = 0
    worker_id: str = ""
    progress: int = 0
    message: str = ""
    step: str = ""
    reason: str = ""
    retry_at: int = 0
    stop: StopMark | None = None
    error: TaskError | None = None
    event_id: str = ""

    @property
    def status(self) -> NodeTaskStatus:
        """The status in which it left its task."""
        return STATUSES[self.kind]

    def applied_to(self, task: NodeTask) -> NodeTask:
        """Return a task, which was read later, as this event left it, as far as that is known."""
        over = self.status.terminal
        reported = self if self.kind is TaskEventKind.PROGRESS else self._latest(task)
        history = tuple(past for past in task.history if past.ended <= self.at)
        return replace(
            task,
            status=self.status,
            reason=self.reason,
            error=self._error(task),
            attempt=self.attempt,
            worker_id=self.worker_id,
            history=history,
            retry_at=self.retry_at,
            progress=reported.progress,
            message=reported.message,
            step=reported.step,
            ready_at=_if_by(self.at, task.ready_at),
            # An attempt may be handed out before the time from which it counts.
            started_at=task.started_at if self.attempt == task.attempt else _if_by(self.at, task.started_at),
            ended_at=task.ended_at if over else 0,
            lease_deadline=task.lease_deadline if self.status is NodeTaskStatus.RUNNING else 0,
            stop=self.stop or (task.stop if task.stop and task.stop.at <= self.at else None),
            blocked=task.blocked if self.status is task.status else "",
            cached=task.cached if over else "",
            postponed=self.retry_at if self.kind is TaskEventKind.WAITING else task.postponed,
            outputs=task.outputs if over else (),
            emitted=task.emitted if over else (),
            wait=task.wait if self.status is task.status else None,
        )

    def _latest(self, task: NodeTask) -> "NodeTask | TaskEvent":
        """Return what holds the node's latest report: the task, if that came before this event, else this event."""
        latest = self.status is task.status and self.attempt == task.attempt and self.kind is not TaskEventKind.RUNNING
        return task if latest else self

    def _error(self, task: NodeTask) -> TaskError | None:
        if self.kind is TaskEventKind.FAILED:
            # The record has the whole error.
            return task.error or self.error
        if self.error is not None:
            return self.error
        return None if task.status is NodeTaskStatus.FAILED else task.error


def _if_by(moment: int, at: int) -> int:
    return at if at <= moment else 0
