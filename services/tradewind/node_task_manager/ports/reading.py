"""Looking at node tasks, queues and logs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask

Item = TypeVar("Item", covariant=True)

STREAM_START = "0-0"
"""The position before the first entry of a capped stream."""


@dataclass(frozen=True, slots=True)
class Stretch(Generic[Item]):
    """The entries after a position in a capped stream; with a `gap`, some are gone and these are all that is left."""

    gap: bool
    entries: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of a type and user: how many node tasks stand in it, and how many limits hold back.

    `first_ready_at` is when the one that is next became ready, in epoch ms; 0 when none stands in it.
    """

    node_type: str
    user_id: str
    count: int
    first_ready_at: int
    held_back: int = 0


@dataclass(frozen=True, slots=True)
class Holders:
    """How many node tasks hold a slot of a limit, and the ids of some: those that have held it longest or, for leases,
    those that end first."""

    count: int
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """How many node tasks of its user stand before a node task in its queue (-1 if it is not there), how many stand in
    the queue, and how many other users have turns."""

    before: int
    queued: int
    other_users: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running node task (0 to 100), its message and the step it is at."""

    task_id: str
    nonce: str
    progress: int
    message: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a node logged; `at` in epoch ms, replaced by the store's time when it is outside the attempt."""

    task_id: str
    attempt: int
    nonce: str
    level: str
    source: str
    message: str
    at: int


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line as it is stored; for an item of a mapped node, `node_id` is `<node>:<item>`."""

    log_id: str
    cycle: int
    run: int
    node_id: str
    level: str
    source: str
    message: str
    at: int
    attempt: int


class NodeTaskReader(Protocol):
    """Reads node tasks without changing them."""

    async def tasks(self, ids: Sequence[str], *, inputs: bool = False, outputs: bool = False) -> list[NodeTask | None]:
        """Return node tasks in the order of `ids`; None for one without a record."""
        ...

    async def components(self, wanted: Sequence[tuple[RunName, str]]) -> list[Component | None]:
        """Return components in the order of `wanted` (run, component id)."""
        ...

    async def component_ids(self, run: RunName) -> tuple[str, ...]:
        """Return the ids of a run's components in the order of submission; none for an unknown run."""
        ...

    async def held_by(self, worker_id: str) -> list[str]:
        """Return the ids of node tasks leased to a worker."""
        ...

    async def emitted(self, ids: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
        """Return what node tasks emitted, by handle, in the order of `ids`; nothing for one without a record."""
        ...

    async def run_inputs(self, run: RunName, component_id: str) -> str:
        """Return the inputs (JSON text) that a component's entry nodes get from its run, "" for none."""
        ...

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[str | None]:
        """Return the values emitted by each (node task, handle) in order, None for one that is not there."""
        ...

    async def lines(self, run: RunName, after: str, limit: int) -> list[StoredLine]:
        """Return log lines after position `after` ("" for the first), oldest first: of all runs of a cycle, or of an
        ad-hoc task or a batch."""
        ...

    async def dead_letters(self, user_id: str, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        """Return when (epoch ms) and which node tasks of a user were given up, newest first; `after` is the last entry
        of the previous page. A node task is given up when it has lost too many workers, or when it fails for good
        although it may be tried more than once."""
        ...

    async def runs_of(
        self, user_id: str, kind: str, after: tuple[int, str] | None, limit: int, *, only_open: bool = False
    ) -> list[tuple[int, str]]:
        """Return when each `task` or `batch` of a user was submitted and the name of its run, newest first, following
        `after`, an entry that may be gone by now. A run is listed while its records are kept; with `only_open`, until
        it has ended."""
        ...


class QueueReader(Protocol):
    """Counts node tasks in queues, under limits and at their ends, and finds what one of them waits behind."""

    async def queues(self) -> list[Queue]:
        """Return each queue that is not empty, by type and user."""
        ...

    async def running(self, limit: int) -> tuple[int, Counter[tuple[str, str]]]:
        """Return how many node tasks are leased, and how many of up to `limit` of them are of which type and user."""
        ...

    async def held(self, limits: Sequence[str]) -> list[int]:
        """Return how many node tasks hold a slot of each limit, where `running` counts leases; for `rate:<type>` and
        `pace:<user>:<key>`, in how many microseconds its bucket is full."""
        ...

    async def holders(self, limit: str, most: int) -> Holders:
        """Return the holders of a limit other than a rate, with up to `most` ids; `running` stands for leases."""
        ...

    async def place(self, node_type: str, user_id: str, task_id: str) -> Place:
        """Return where a node task stands in the queue of its type and user."""
        ...

    async def totals(self) -> dict[str, int]:
        """Return how many node tasks have ended, by status, and how many have failed, by `failed:<code>`."""
        ...

    async def cleaned(self) -> dict[str, int]:
        """Return how many `runs` of flows, `node_tasks` and index `entries` cleaning has removed."""
        ...
