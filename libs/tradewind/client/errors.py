"""What the client raises.

TradewindError            every error of the client: `reason` (a name of ErrorReason, or ""), `metadata`
+-- InvalidInput          the request has faults: `violations` holds all of them, each with its path
+-- NotFound              no such flow, cycle, node task, worker or node type
+-- Conflict              something else already has this name or request id
+-- WrongStatus           the present status of `subject` forbids this
+-- Aborted               not done: a cycle is still running, or somebody else made a change first
+-- Unauthenticated       the token is missing, unknown or expired
+-- PermissionDenied      the caller's role does not allow this, or it belongs to another user
+-- Exhausted             a limit is reached: try again after `retry_after` seconds
+-- Unavailable           a server is away for now: try again after `retry_after` seconds
|   +-- Unreachable       nobody answers at `address`
+-- TimedOut              no answer in time; whether it took effect is unknown
+-- ServerFault           a fault inside the server: `correlation_id` finds it in its log
+-- CycleFailed           a cycle ended but did not complete: `cycle`, `failures`, `outputs`
+-- TaskFailed            an ad-hoc task ended but did not complete: `task`
+-- BatchFailed           a batch ended but did not complete: `batch`, `items`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tradewind.client.batches import BatchRecord
    from tradewind.client.cycles import CycleRecord, NodeFailure
    from tradewind.client.node_tasks import NodeTaskRecord

_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault in a request: `path` as in `edges[3].target`, `message` for a person."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class TradewindError(Exception):
    """A request to Tradewind did not succeed; the text is for a person."""

    def __init__(self, message: str, *, reason: str = "", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata: dict[str, str] = dict(metadata or {})

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception's own calls the class with the text alone.
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InvalidInput(TradewindError):
    """The request has faults; its text lists all of them."""

    def __init__(
        self,
        message: str,
        violations: Sequence[Violation] = (),
        *,
        reason: str = "INVALID_INPUT",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.violations = tuple(violations)
        text = "\n  ".join(["the request has faults:", *map(str, self.violations)]) if self.violations else message
        super().__init__(text, reason=reason, metadata=metadata)


class NotFound(TradewindError):
    """What was named does not exist, or its record has passed its retention."""


class Conflict(TradewindError):
    """Something else already has this name or this request id."""


class WrongStatus(TradewindError):
    """The present status of `subject` (such as `flows/momentum`) forbids what was asked.

    So do results that have passed their retention while the cycle is still on record (`RESULTS_EXPIRED`).
    """

    def __init__(
        self, message: str, *, subject: str = "", reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.subject = subject


class Aborted(TradewindError):
    """A policy held this back, or somebody else was first; asking again later may work."""


class Unauthenticated(TradewindError):
    """The server does not know the caller: the token is missing, revoked or expired."""


class PermissionDenied(TradewindError):
    """The server knows the caller, but their role does not allow this, or it belongs to another user."""


class _Temporary(TradewindError):
    """It passes: asking again after `retry_after` seconds may work."""

    def __init__(
        self, message: str, *, retry_after: float = 0.0, reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.retry_after = retry_after


class Exhausted(_Temporary):
    """A limit is reached; asking again after `retry_after` seconds may work."""


class Unavailable(_Temporary):
    """A server, its store or a peer is away for now; asking again after `retry_after` seconds should work."""


class Unreachable(Unavailable):
    """Nobody answers at `address`, or the connection broke."""

    def __init__(self, address: str, detail: str) -> None:
        super().__init__(f"cannot reach {address}: {detail}")
        self.address = address
        self.detail = detail


class TimedOut(TradewindError):
    """No answer came in time; whether the call took effect is unknown."""


class ServerFault(TradewindError):
    """A fault inside the server; its log has more under `correlation_id`."""

    @property
    def correlation_id(self) -> str:
        """What to look for in the server's log; "" if the server did not say."""
        return self.metadata.get("correlation_id", "")


class CycleFailed(TradewindError):
    """A cycle ended but did not complete.

    `failures` are the nodes that failed or were terminated, and why; `outputs` is what the flow's sink nodes emitted
    nevertheless, by node and handle.
    """

    def __init__(
        self, cycle: "CycleRecord", failures: "Sequence[NodeFailure]", outputs: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.cycle = cycle
        self.failures = tuple(failures)
        self.outputs = outputs
        cause = f": {cycle.reason}" if cycle.reason else ""
        head = f"cycle {cycle.cycle} of {cycle.flow_id} ended with status {cycle.status}{cause}"
        super().__init__("\n  ".join([head, *map(str, self.failures)]), reason=f"CYCLE_{cycle.status.upper()}")


class TaskFailed(TradewindError):
    """An ad-hoc task ended but did not complete; `task` says how and why."""

    def __init__(self, task: "NodeTaskRecord") -> None:
        self.task = task
        super().__init__(_outcome_text(task), reason=f"TASK_{task.status.upper()}")


class BatchFailed(TradewindError):
    """A batch ended but did not complete; `items` are all of its items in order, with what they emitted."""

    def __init__(self, batch: "BatchRecord", items: "Sequence[NodeTaskRecord]") -> None:
        self.batch = batch
        self.items = tuple(items)
        progress = batch.progress
        head = (
            f"batch {batch.batch_id} ended with status {batch.status}: {progress.completed} of {progress.total} "
            f"completed, {progress.failed} failed, {progress.cancelled} cancelled"
        )
        others = [_outcome_text(item) for item in items if item.status != "completed"]
        more = [f"and {len(others) - _MAX_SHOWN} more"] if len(others) > _MAX_SHOWN else []
        super().__init__("\n  ".join([head, *others[:_MAX_SHOWN], *more]), reason=f"BATCH_{batch.status.upper()}")


def _outcome_text(task: "NodeTaskRecord") -> str:
    cause = str(task.error) if task.error is not None else task.reason
    return f"{task.node_task_id} ended with status {task.status}" + (f": {cause}" if cause else "")
