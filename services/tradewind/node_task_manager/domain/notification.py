"""Notifications: what users should know, in words."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.node_task_manager.domain.batch import BatchStatus, ended_batch_status
from tradewind.node_task_manager.domain.names import RunName


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


class Severity(StrEnum):
    """How much a notification matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fact:
    """A notification as it is stored, `at` in epoch ms; a published one brings its own title, message and severity.

    `subject` is a node task, `batch:<id>`, a flow, or `<flow>:<cycle>:<run>`. `code` and `message` describe a failure,
    the counts the items of a batch; `stopped` marks a batch that was cancelled, `given_up` a dead letter.
    """

    kind: NotificationKind
    subject: str = ""
    at: int = 0
    node_type: str = ""
    code: str = ""
    message: str = ""
    given_up: bool = False
    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    stopped: bool = False
    title: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification as its user reads it; `notification_id` is its position among those of the user."""

    notification_id: str
    fact: Fact
    read: bool = False

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        match self.fact.kind:
            case NotificationKind.TASK_COMPLETED:
                return Severity.INFO
            case NotificationKind.TASK_FAILED | NotificationKind.DEAD_LETTER | NotificationKind.CYCLE_FAILED:
                return Severity.ERROR
            case NotificationKind.TASK_CANCELLED | NotificationKind.ANSWER_WANTED:
                return Severity.WARNING
            case NotificationKind.BATCH_FINISHED:
                severities = {BatchStatus.COMPLETED: Severity.INFO, BatchStatus.FAILED: Severity.ERROR}
                return severities.get(self._batch_status, Severity.WARNING)
        return self.fact.severity or Severity.INFO

    @property
    def title(self) -> str:
        """The notification in one line."""
        fact = self.fact
        match fact.kind:
            case NotificationKind.TASK_COMPLETED:
                return f'{self._subject_text} of type "{fact.node_type}" completed'
            case NotificationKind.TASK_FAILED:
                return f'{self._subject_text} of type "{fact.node_type}" failed'
            case NotificationKind.TASK_CANCELLED:
                return f'{self._subject_text} of type "{fact.node_type}" was cancelled'
            case NotificationKind.BATCH_FINISHED:
                words = {BatchStatus.CANCELLED: "was cancelled", BatchStatus.PARTIAL: "partly completed"}
                ended = words.get(self._batch_status, self._batch_status)
                return f'{self._subject_text} of {fact.total} of type "{fact.node_type}" {ended}'
            case NotificationKind.DEAD_LETTER:
                return f'node task {fact.subject} of type "{fact.node_type}" was given up'
            case NotificationKind.CYCLE_FAILED:
                run = RunName.of_cycle(fact.subject)
                name = f'cycle {run.cycle} of flow "{run.flow_id}"'
                return f"nodes of {name} failed" if fact.failed else f"{name} was stopped"
            case NotificationKind.ANSWER_WANTED:
                return f"{fact.subject} waits for an answer"
        return fact.title

    @property
    def message(self) -> str:
        """The details, "" when the title says everything."""
        fact = self.fact
        if fact.kind is NotificationKind.BATCH_FINISHED:
            counts = {"completed": fact.completed, "failed": fact.failed, "cancelled": fact.cancelled}
            return ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        if fact.kind is NotificationKind.CYCLE_FAILED:
            nodes = f"{fact.failed} of {fact.total} nodes of a component failed" if fact.failed else ""
            return "; ".join(filter(None, (nodes, fact.message)))
        text = f"{fact.code}: {fact.message}" if fact.code else fact.message
        return f"{text} (listed as a dead letter)" if fact.given_up else text

    @property
    def _subject_text(self) -> str:
        """The ad-hoc task or batch that ended, by the id that calls take: `task:<id>` or `batch <id>`."""
        subject = self.fact.subject
        return subject.replace(":", " ", 1) if subject.startswith("batch:") else subject

    @property
    def _batch_status(self) -> BatchStatus:
        """The status of the batch that has ended."""
        fact = self.fact
        return ended_batch_status(fact.total, fact.completed, fact.failed, fact.cancelled, stopped=fact.stopped)
