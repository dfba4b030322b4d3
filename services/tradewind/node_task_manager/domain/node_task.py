"""Node tasks: one run of one node in one run of one cycle."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.waiting import Resumption, Wait

ELSEWHERE = "@"
"""Stands for a value that stays with its source; it is not JSON, so no value can be mistaken for it."""


class NodeTaskStatus(StrEnum):
    """Where a node task stands."""

    REGISTERED = "registered"
    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    TERMINATED = "terminated"
    SKIPPED = "skipped"

    @property
    def terminal(self) -> bool:
        """Whether no other status can follow."""
        return not TRANSITIONS[self]


TRANSITIONS: dict[NodeTaskStatus, frozenset[NodeTaskStatus]] = {
    NodeTaskStatus.REGISTERED: frozenset({NodeTaskStatus.PENDING, NodeTaskStatus.SUSPENDED, NodeTaskStatus.SKIPPED}),
    # Straight to an end: nobody takes it in time, or a worker reports the end of an attempt that the store has lost.
    # Straight to a wait: the next attempt at a node that needs no worker.
    NodeTaskStatus.PENDING: frozenset(
        {
            NodeTaskStatus.RUNNING,
            NodeTaskStatus.SUSPENDED,
            NodeTaskStatus.COMPLETED,
            NodeTaskStatus.FAILED,
            NodeTaskStatus.TERMINATED,
            NodeTaskStatus.SKIPPED,
        }
    ),
    NodeTaskStatus.RUNNING: frozenset(
        {
            NodeTaskStatus.PENDING,
            NodeTaskStatus.SUSPENDED,
            NodeTaskStatus.COMPLETED,
            NodeTaskStatus.FAILED,
            NodeTaskStatus.TERMINATED,
        }
    ),
    NodeTaskStatus.SUSPENDED: frozenset(
        {NodeTaskStatus.PENDING, NodeTaskStatus.COMPLETED, NodeTaskStatus.FAILED, NodeTaskStatus.TERMINATED}
    ),
    NodeTaskStatus.COMPLETED: frozenset(),
    NodeTaskStatus.FAILED: frozenset(),
    NodeTaskStatus.TERMINATED: frozenset(),
    NodeTaskStatus.SKIPPED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class StopMark:
    """Who asked for a stop, why and when (epoch ms)."""

    reason: str
    by: str
    at: int


KNOWN_CODES = frozenset(
    {
        "NODE_ERROR",
        "INVALID_OUTPUT",
        "OUTPUT_TOO_LARGE",
        "INPUT_TOO_LARGE",
        "INPUT_MISSING",
        "SECRET_MISSING",
        "START_TIMEOUT",
        "TIMEOUT",
        "HEARTBEAT_TIMEOUT",
        "WORKER_LOST",
        "PROCESS_DIED",
        "UNKNOWN_NODE_TYPE",
        "UNKNOWN_HANDLE",
        "TOTAL_TIMEOUT",
        "RETRY_BUDGET_EXHAUSTED",
        "ITEMS_FAILED",
        "WAIT_TIMEOUT",
        "SUB_FLOW_FAILED",
    }
)
"""Error codes by which failures are counted; the counting script has the same list."""


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why a node task failed."""

    code: str
    message: str
    type: str = ""
    traceback: str = ""
    final: str = ""
    """Why no further attempt followed, if the node may be tried more than once."""

    @property
    def summary(self) -> str:
        """The error in one line that begins with its code."""
        return f"{self.code}: {self.typed_message}"

    @property
    def typed_message(self) -> str:
        """The message after the type of the error, if it has one."""
        return f"{self.type}: {self.message}" if self.type else self.message


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that did not succeed; times in epoch ms, `how` is its error's code or WORKER_LOST."""

    attempt: int
    worker_id: str
    began: int
    ended: int
    how: str


@dataclass(frozen=True)
class NodeTask:
    """A node task as it is on record; times in epoch ms, 0 for not yet.

    `failures` of its attempts failed, the last with `error`; it waits for the next attempt until `retry_at`.
    `history` holds the latest 20 attempts that failed while more were allowed, or whose worker was lost.
    `inputs` holds the value of each live edge by its place in the plan, ELSEWHERE if it stays with its source;
    `outputs` holds the emitted values by handle. Both are filled only on request; `emitted` names the handles.
    `cached` is the cache that its outputs came from, "" when it ran. While `postponed` equals `retry_at`, it waits for
    another node task to finish the same work, whose outputs will be cached.
    `kept`, in a rerun, names the node task of an earlier run whose result this one took over, "" for none.
    `items` counts the items of a node that runs once for each item of a list, once the list is split.
    `slots` are the limits it holds a slot of; `blocked` is the limit that keeps it from running although it is ready.
    `child` names the run of another flow that its latest attempt began, "" for none.
    `wait` is what it waits for while suspended, until `retry_at` at most; `resumed` is what ended its latest wait.
    """

    task_id: str
    status: NodeTaskStatus
    component_id: str
    index: int
    waiting: int = 0
    live: int = 0
    reason: str = ""
    error: TaskError | None = None
    attempt: int = 0
    nonce: str = ""
    worker_id: str = ""
    lost: int = 0
    failures: int = 0
    retry_at: int = 0
    history: tuple[PastAttempt, ...] = ()
    progress: int = 0
    message: str = ""
    step: str = ""
    registered_at: int = 0
    ready_at: int = 0
    started_at: int = 0
    ended_at: int = 0
    lease_deadline: int = 0
    stop: StopMark | None = None
    slots: tuple[str, ...] = ()
    blocked: str = ""
    inputs: tuple[tuple[int, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    emitted: tuple[str, ...] = ()
    cached: str = ""
    postponed: int = 0
    items: ItemCounts | None = None
    wait: Wait | None = None
    resumed: Resumption | None = None
    kept: str = ""
    child: str = ""

    @property
    def waits_for_same_work(self) -> bool:
        """Whether another node task does the same work, whose cached outputs it will use."""
        return 0 < self.retry_at == self.postponed

    @property
    def updated_at(self) -> int:
        """When its status last changed."""
        since = self.wait.since if self.wait else 0
        return max(self.registered_at, self.ready_at, self.started_at, self.ended_at, since)
