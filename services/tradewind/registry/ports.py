"""What the registry needs from outside: stores for workers and for the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from tradewind.registry.domain.node_type import NodeType, NodeTypeRecord
from tradewind.registry.domain.worker import HeartbeatAnswer, Worker, WorkerRecord

Record = TypeVar("Record")


class Refusal(StrEnum):
    """Why a store refused a worker."""

    REPLACED = "replaced"
    """A newer incarnation of the worker has registered."""
    TOO_MANY_WORKERS = "too_many_workers"
    TOO_MANY_NODE_TYPES = "too_many_node_types"


@dataclass(frozen=True, slots=True)
class Page(Generic[Record]):
    """A page of an ordered list; the next page begins after `next_after`, which is empty on the last page."""

    records: tuple[Record, ...] = ()
    next_after: str = ""


class WorkerStore(Protocol):
    """Workers on record. Every change is atomic. An outage raises the store's own error, never an answer."""

    async def register(self, worker: Worker, node_types: Sequence[NodeType]) -> WorkerRecord | Refusal:
        """Put a worker on record as alive, offering `worker.node_types`, and declare `node_types` (the latest wins).

        If the worker is already on record, its record is replaced as a whole. The same incarnation keeps its time of
        registration and whether it is draining. Another incarnation counts as newer and begins anew; the record
        remembers the previous one as replaced for as long as it exists. A replaced incarnation is refused.
        """
        ...

    async def heartbeat(self, worker: Worker, *, draining: bool = False) -> HeartbeatAnswer | Refusal:
        """Note that a worker is alive, and what it now reports about itself; with `draining`, mark it as by `drain`.

        A worker that has no record, or that is offline and on record as another incarnation, gets a new record. A
        replaced incarnation changes nothing and is asked to drain. An incarnation that was never seen changes nothing
        while another one is alive, and is asked to register. In all other cases `register_again` says that a node type
        it offers is not declared.
        """
        ...

    async def drain(self, worker_id: str) -> WorkerRecord | None:
        """Mark a worker as draining: no new work until another incarnation registers. None when not on record."""
        ...

    async def deregister(self, worker_id: str, incarnation: str = "") -> bool:
        """Delete a worker's record, with `incarnation` only if it is that one's; return whether it was deleted."""
        ...

    async def find(self, worker_id: str) -> WorkerRecord | None:
        """Return a worker, even one that is offline, or None when not on record."""
        ...

    async def list(
        self, after: str, limit: int, *, include_offline: bool = False, only_called: bool = False
    ) -> Page[WorkerRecord]:
        """Return up to `limit` workers in order of id, beginning after `after`.

        Only workers that are alive, unless `include_offline`; with `only_called`, only those that have an api_url. A
        page may end early to stay small in bytes.
        """
        ...

    async def available(self, node_type: str, limit: int) -> Sequence[WorkerRecord]:
        """Return up to `limit` workers that are alive, not draining and offer the type.

        The least loaded come first, then by id. There may be fewer to stay small in bytes.
        """
        ...


class NodeTypeStore(Protocol):
    """The catalogue of node types: those that a live worker offers, or offered within the last 24 h."""

    async def list(self, after: str, limit: int) -> Page[NodeTypeRecord]:
        """Return up to `limit` node types in order of name, beginning after `after`.

        A page may end early to stay small in bytes.
        """
        ...

    async def find(self, names: Sequence[str], offering: int | None = None) -> Sequence[NodeTypeRecord] | None:
        """Return those of the named node types that are declared, in the order of the names.

        Each names up to `offering` of its live workers, any of them, or `Limits.offering`. None when together they have
        more than `Limits.answer_bytes`.
        """
        ...


class Sweeper(Protocol):
    """Keeps the indexes free of lapsed entries; lists are correct without it."""

    async def sweep(self) -> int:
        """Remove a bounded number of lapsed workers and node types; return how many."""
        ...


class Stores(Sweeper, Protocol):
    """The stores of the registry, which are swept together."""

    @property
    def workers(self) -> WorkerStore: ...

    @property
    def node_types(self) -> NodeTypeStore: ...
