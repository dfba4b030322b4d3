"""What the registry needs of the outside: a place for workers and one for the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from tradewind.registry.domain.node_type import NodeType, NodeTypeRecord
from tradewind.registry.domain.worker import Beat, Worker, WorkerRecord

Record = TypeVar("Record")


class Refusal(StrEnum):
    """Why a store did not take a worker."""

    REPLACED = "replaced"
    """A newer incarnation of it has registered."""
    TOO_MANY_WORKERS = "too_many_workers"
    TOO_MANY_NODE_TYPES = "too_many_node_types"


@dataclass(frozen=True, slots=True)
class Page(Generic[Record]):
    """Part of a list in order; `next_after` is where the next part begins, empty when this is the last."""

    records: tuple[Record, ...] = ()
    next_after: str = ""


class WorkerStore(Protocol):
    """Workers on record. Every change is atomic. An outage raises the store's own error, never an answer."""

    async def register(self, worker: Worker, node_types: Sequence[NodeType]) -> WorkerRecord | Refusal:
        """Put a worker on record as alive, offering `worker.node_types`, and declare `node_types` (the latest wins).

        A worker that is on record is replaced whole. The same incarnation keeps the time of its registration and its
        draining; another one counts as newer and begins anew, and the one before is remembered as replaced for as
        long as the record stands. A replaced incarnation is refused.
        """
        ...

    async def heartbeat(self, worker: Worker) -> Beat | Refusal:
        """Note that a worker is alive and what it says of itself now.

        A worker that is not on record, or out and on record as another incarnation, is put on record whole. A replaced
        incarnation changes nothing and is told to drain. One that was never seen changes nothing while another one is
        alive, and is asked to register. Otherwise `register_again` says that a node type it offers is not declared.
        """
        ...

    async def drain(self, worker_id: str) -> WorkerRecord | None:
        """Have a worker told to take no new work, until another incarnation registers. None when not on record."""
        ...

    async def deregister(self, worker_id: str, incarnation: str = "") -> bool:
        """Take a worker off the record, with `incarnation` only that one; say whether there was one to take."""
        ...

    async def find(self, worker_id: str) -> WorkerRecord | None:
        """Return a worker, also one that is out, or None when not on record."""
        ...

    async def list(
        self, after: str, limit: int, *, include_offline: bool = False, only_called: bool = False
    ) -> Page[WorkerRecord]:
        """Return at most `limit` workers by id that come after `after`; those alive, unless offline ones are wanted.

        With `only_called` those that have an api_url. A page may also end early to stay small in bytes.
        """
        ...

    async def available(self, node_type: str, limit: int) -> Sequence[WorkerRecord]:
        """Return at most `limit` workers that are alive, not draining and offer the type.

        The least loaded come first, then by id. There may be fewer to stay small in bytes.
        """
        ...


class NodeTypeStore(Protocol):
    """The catalogue of node types: those that some live worker offers, or offered until 24 h ago."""

    async def list(self, after: str, limit: int) -> Page[NodeTypeRecord]:
        """Return at most `limit` node types by name that come after `after`.

        A page may also end early to stay small in bytes.
        """
        ...

    async def find(self, names: Sequence[str]) -> Sequence[NodeTypeRecord] | None:
        """Return those of the named node types that are declared, in the order of the names.

        None when they have more than `Limits.answer_bytes` together.
        """
        ...


class Sweeper(Protocol):
    """Keeps the indices free of what has lapsed; what is listed does not depend on it."""

    async def sweep(self) -> int:
        """Take out a bounded number of lapsed workers and node types; say how many."""
        ...
