"""Node tasks as the node task manager knows them: each is one run of one node in one run of one cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.client import json_text
from tradewind.client.sub_flows import SubFlowCycle, sub_flow_from
from tradewind.client.wire import Members, moment


class NodeTaskStatus(StrEnum):
    """The status of a node task; completed, failed, terminated and skipped are final."""

    REGISTERED = "registered"
    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    TERMINATED = "terminated"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """Whether it is final."""
        return self in (
            NodeTaskStatus.COMPLETED,
            NodeTaskStatus.FAILED,
            NodeTaskStatus.TERMINATED,
            NodeTaskStatus.SKIPPED,
        )


_STATUSES = Members(node_task_pb2.NodeTaskStatus, NodeTaskStatus)


@dataclass(frozen=True, slots=True)
class NodeError:
    """Why a node task failed: a `code` such as NODE_ERROR or TIMEOUT, and what the node raised, if it did."""

    code: str
    message: str
    type: str = ""
    traceback: str = ""
    final_reason: str = ""
    """Why no further attempt followed, if the node may be tried more than once."""

    def __str__(self) -> str:
        cause = f"{self.type}: {self.message}" if self.type else self.message
        text = cause if self.code == "NODE_ERROR" else f"{self.code}: {cause}"
        return f"{text}\nnot tried again: {self.final_reason}" if self.final_reason else text

    @property
    def line(self) -> str:
        """The error in one line: the first line of the message, and why no further attempt followed."""
        first = str(self).partition("\n")[0]
        return f"{first}; not tried again: {self.final_reason}" if self.final_reason else first


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that did not succeed: a `code` such as NODE_ERROR or TIMEOUT, or WORKER_LOST for a lost worker."""

    attempt: int
    worker_id: str
    began_at: datetime | None
    ended_at: datetime | None
    code: str


@dataclass(frozen=True, slots=True)
class StatusCounts:
    """How many node tasks have each status."""

    registered: int = 0
    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    terminated: int = 0
    skipped: int = 0
    suspended: int = 0

    @property
    def ended(self) -> int:
        """How many have ended."""
        return self.completed + self.failed + self.terminated + self.skipped


@dataclass(frozen=True, slots=True)
class NodeTaskWait:
    """What a suspended node task waits for: the signal `signal` or the time `until`, whichever comes first.

    `form` is what a person is asked, None for nothing. The signal's payload is emitted on the handle `completes`; if
    that is empty, the node runs again, unless it is an approval. A node of type `flow` waits for a cycle of `flow_id`.
    """

    signal: str
    until: datetime | None
    form: Any
    completes: str
    since: datetime | None
    flow_id: str = ""


@dataclass(frozen=True, slots=True)
class Resumption:
    """What ended a wait: a signal, or the time if `signal` is empty; `payload` came with the signal from `by`."""

    signal: str
    payload: Any
    by: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """The state of the items of a mapped node: of `total`, `begun` have become ready and `need` must complete.

    `cancelled` were stopped or skipped.
    """

    total: int
    need: int
    begun: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """How many have ended."""
        return self.completed + self.failed + self.cancelled

    @property
    def open(self) -> int:
        """How many are ready or running."""
        return self.begun - self.ended


@dataclass(frozen=True, slots=True)
class NodeTaskRecord:
    """A node task on record. `outputs`, by handle, and `config_json` are set only if they were asked for.

    `history` is its latest attempts that did not succeed, if it was read by itself or as a dead letter. After a failed
    attempt, described by `last_error`, it waits until `retry_at` for the next one. For a node that runs once for each
    item of a list, `items` counts the items once the list is split; for such an item, `item` is its place in the list.
    """

    node_task_id: str
    flow_id: str
    cycle: int
    run: int
    run_id: str
    component_id: str
    node_id: str
    node_type: str
    user_id: str
    status: NodeTaskStatus
    reason: str
    error: NodeError | None
    attempt: int
    worker_id: str
    progress: int
    message: str
    registered_at: datetime | None
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime | None
    lease_deadline: datetime | None
    stop_reason: str
    stop_by: str
    emitted_handles: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    config_json: str = ""
    failures: int = 0
    max_attempts: int = 1
    retry_at: datetime | None = None
    last_error: NodeError | None = None
    history: tuple[PastAttempt, ...] = ()
    items: ItemCounts | None = None
    item: int | None = None
    current_step: str = ""
    """What the node said it is doing."""
    cached_in: str = ""
    """The cache that its outputs came from; empty if it ran."""
    wait: NodeTaskWait | None = None
    """What it waits for while it is suspended."""
    resumed: Resumption | None = None
    """What ended its latest wait."""
    kept_from: str = ""
    """In a rerun, the node task of an earlier run whose result this one took over; empty if it ran."""
    stopped_at: datetime | None = None
    """When it was asked to stop; None if nobody did."""
    sub_flow: SubFlowCycle | None = None
    """For a node of type `flow`, the cycle that its latest attempt runs or ran."""

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status.ended

    @property
    def config(self) -> Any:
        """The node's configuration, secrets as references; None if it was not asked for."""
        return json_text.decode(self.config_json)


def node_task_from(message: node_task_pb2.NodeTask) -> NodeTaskRecord:
    """Read a node task."""
    return NodeTaskRecord(
        node_task_id=message.node_task_id,
        flow_id=message.flow_id,
        cycle=message.cycle,
        run=message.run,
        run_id=message.run_id,
        component_id=message.component_id,
        node_id=message.node_id,
        node_type=message.node_type,
        user_id=message.user_id,
        status=_STATUSES[message.status],
        reason=message.reason,
        error=_error(message.error) if message.HasField("error") else None,
        attempt=message.attempt,
        worker_id=message.worker_id,
        progress=message.progress,
        message=message.message,
        registered_at=moment(message, "registered_at"),
        ready_at=moment(message, "ready_at"),
        started_at=moment(message, "started_at"),
        ended_at=moment(message, "ended_at"),
        updated_at=moment(message, "updated_at"),
        lease_deadline=moment(message, "lease_deadline"),
        stop_reason=message.stop.reason,
        stop_by=message.stop.by,
        emitted_handles=tuple(message.emitted_handles),
        outputs={output.handle: json_text.decode(output.value_json) for output in message.outputs},
        config_json=message.config_json,
        failures=message.failures,
        max_attempts=max(1, message.max_attempts),
        retry_at=moment(message, "retry_at"),
        last_error=_error(message.last_error) if message.HasField("last_error") else None,
        history=tuple(
            PastAttempt(past.attempt, past.worker_id, moment(past, "began_at"), moment(past, "ended_at"), past.code)
            for past in message.history
        ),
        items=_items(message.items) if message.HasField("items") else None,
        item=message.item if message.HasField("item") else None,
        current_step=message.current_step,
        cached_in=message.cached_in,
        wait=_wait(message.wait) if message.HasField("wait") else None,
        resumed=_resumption(message.resumed) if message.HasField("resumed") else None,
        kept_from=message.kept_from,
        stopped_at=moment(message.stop, "at") if message.HasField("stop") else None,
        sub_flow=sub_flow_from(message),
    )


def _wait(message: node_task_pb2.Wait) -> NodeTaskWait:
    form = json_text.decode(message.form_json)
    until, since = moment(message, "until"), moment(message, "since")
    return NodeTaskWait(message.signal, until, form, message.completes, since, message.flow_id)


def _resumption(message: node_task_pb2.Resumption) -> Resumption:
    payload = json_text.decode(message.payload_json)
    return Resumption(message.signal, payload, message.by, moment(message, "at"))


def _error(message: node_task_pb2.NodeTaskError) -> NodeError:
    return NodeError(message.code, message.message, message.type, message.traceback, message.final_reason)


def _items(message: node_task_pb2.ItemCounts) -> ItemCounts:
    return ItemCounts(message.total, message.need, message.begun, message.completed, message.failed, message.cancelled)


def counts_from(message: node_task_pb2.StatusCounts) -> StatusCounts:
    """Read counts."""
    return StatusCounts(
        registered=message.registered,
        pending=message.pending,
        running=message.running,
        completed=message.completed,
        failed=message.failed,
        terminated=message.terminated,
        skipped=message.skipped,
        suspended=message.suspended,
    )
