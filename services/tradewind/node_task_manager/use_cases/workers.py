"""Workers connected to this process: how much room each has, and what it holds."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, TypeAlias

from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.domain.handles import Declared
from tradewind.node_task_manager.ports.work import Held, Vacancy
from tradewind.node_task_manager.ports.workers import WorkerLine

MAX_VACANCIES = 32
MAX_OFFERED_TYPES = 4000
UNANSWERED_PINGS = 3
_RESERVED = 25
"""Room that a script leaves for the next one, which begins before it ends and makes node tasks ready as well."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker says about a node type: its version, the cache that outputs may come from unless the node names
    one, whether nodes may begin before their input is stored, and its output handles, None when it does not say."""

    version: str = ""
    cache: CacheUse | None = None
    eager: bool = False
    outputs: frozenset[str] | None = None


@dataclass(eq=False)
class ConnectedWorker:
    """A worker behind a stream. `sessions` holds the number of its stream by shard, `held` its leases by nonce.

    The worker cannot name `unnamed` leases: it does not know them yet, or has reported their end, which is not
    stored yet. `promised` is room offered to claims under way; `offers` describes some of its node types.
    """

    worker_id: str
    incarnation: str
    node_types: tuple[str, ...]
    capacity: int
    line: WorkerLine
    sessions: dict[int, int] = field(default_factory=dict)
    held: dict[str, tuple[int, Held]] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    promised: int = 0
    offers: Mapping[str, Offer] = field(default_factory=dict)
    unanswered_pings: int = 0

    called: ClassVar[bool] = False
    """Whether the worker is called, and renews its leases and reports by calls of its own."""

    @property
    def silent(self) -> bool:
        """Whether it has answered none of the last few pings."""
        return self.unanswered_pings > UNANSWERED_PINGS

    @property
    def reachable(self) -> bool:
        """Whether the worker is there, as far as is known."""
        return not self.silent

    @property
    def room(self) -> int:
        """How many node tasks it can take beyond those it holds or may be about to get; none while it answers no pings
        or does not read what was sent."""
        if self.silent or self.line.full:
            return 0
        return max(0, self.capacity - len(self.held) - self.promised)

    @cached_property
    def eager_types(self) -> frozenset[str]:
        """The node types that it may go on with by itself, without those whose results may be in a cache."""
        return frozenset(name for name, offer in self.offers.items() if offer.eager and offer.cache is None)

    @cached_property
    def declared(self) -> Declared:
        """The output handles of those of its node types that it has declared."""
        return declared_by(self.offers)

    def version_of(self, node_type: str) -> str:
        """Return the version of a node type, "" when it has none."""
        offer = self.offers.get(node_type)
        return offer.version if offer is not None else ""

    def held_in(self, shard: int) -> list[Held]:
        """Return the leases that it holds in a shard."""
        return [held for at, held in self.held.values() if at == shard]

    def unnamed_in(self, shard: int) -> list[Held]:
        """Return the leases that it holds in a shard and cannot name; none while it is silent."""
        if self.silent or not self.unnamed:
            return []
        return [each for each in self.held_in(shard) if each.nonce in self.unnamed]

    def release(self, nonce: str) -> None:
        """Note that it no longer holds this lease."""
        self.held.pop(nonce, None)
        self.unnamed.discard(nonce)


def declared_by(offers: Mapping[str, Offer]) -> Declared:
    """Return the output handles of the node types that declare them."""
    return frozenset((name, offer.outputs) for name, offer in offers.items() if offer.outputs is not None)


RoomOffer: TypeAlias = tuple[ConnectedWorker, Vacancy]
"""A worker, and its room as it is offered to a script."""
_Kind: TypeAlias = dict[ConnectedWorker, None]


class WorkerPool:
    """All workers connected to this process.

    Workers with room stand in line by kind, that is by the node types they offer, so that many workers of one kind
    never hide the only one of another.
    """

    def __init__(self) -> None:
        self._workers: dict[str, ConnectedWorker] = {}
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._room_listeners: list[Callable[[], None]] = []
        self._change_listeners: list[Callable[[str], None]] = []

    def __iter__(self) -> Iterator[ConnectedWorker]:
        return iter(list(self._workers.values()))

    def __len__(self) -> int:
        return len(self._workers)

    def __contains__(self, worker: ConnectedWorker) -> bool:
        """Say whether this very stream of a worker is connected here."""
        return self._workers.get(worker.worker_id) is worker

    def on_room(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever there is room after there was none."""
        self._room_listeners.append(listener)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the id of each worker that comes or goes."""
        self._change_listeners.append(listener)

    def changed(self, worker: ConnectedWorker) -> None:
        """Note that a worker has come or gone, or that its `reachable` has changed."""
        for listener in self._change_listeners:
            listener(worker.worker_id)

    def get(self, worker_id: str) -> ConnectedWorker | None:
        """Return the worker, or None when it is not connected here."""
        return self._workers.get(worker_id)

    def add(self, worker: ConnectedWorker) -> None:
        """Add a worker; an older stream of the same id is closed."""
        older = self._workers.get(worker.worker_id)
        if older is not None:
            self.remove(older)
            older.line.close("another stream of this worker was opened")
        self._workers[worker.worker_id] = worker
        self.changed(worker)
        self.refresh(worker)

    def remove(self, worker: ConnectedWorker) -> None:
        """Remove this very stream of a worker."""
        if worker in self:
            del self._workers[worker.worker_id]
            self.changed(worker)
        self._remove_from_kinds(worker)

    def refresh(self, worker: ConnectedWorker) -> None:
        """Note that a worker's room may have changed."""
        if not worker.room or worker not in self:
            self._remove_from_kinds(worker)
            return
        kind = self._kinds.get(worker.node_types)
        if kind is not None:
            kind.setdefault(worker)
            return
        had_room = self.has_room
        self._kinds[worker.node_types] = {worker: None}
        if not had_room:
            for listener in self._room_listeners:
                listener()

    @property
    def has_room(self) -> bool:
        """Whether any worker has room."""
        return bool(self._kinds)

    @property
    def rounds(self) -> int:
        """How many claims it takes until workers of every kind have had an offer."""
        return max(1, math.ceil(len(self._kinds) / MAX_VACANCIES))

    def promise(self, shard: int, *, reserve: bool = False) -> list[RoomOffer]:
        """Offer the room of up to 32 workers to one script, each kind in turn; `settle` takes it back.

        With `reserve`, some room is left for the next script: only 25 of a worker's room are offered, or all but 25
        if that is more.
        """
        offers: list[RoomOffer] = []
        types = 0
        while self._kinds and len(offers) < MAX_VACANCIES and types <= MAX_OFFERED_TYPES:
            node_types, kind = next(iter(self._kinds.items()))
            worker = next(iter(kind))
            room = max(min(worker.room, _RESERVED), worker.room - _RESERVED) if reserve else worker.room
            offers.append(
                (worker, Vacancy(worker.worker_id, worker.sessions[shard], room, node_types, worker.capacity))
            )
            worker.promised += room
            types += len(node_types)
            self._remove_from_kinds(worker)
            if kind:
                self._kinds[node_types] = self._kinds.pop(node_types)
        for worker, _ in offers:
            if worker.room:
                self._kinds.setdefault(worker.node_types, {})[worker] = None
        return offers

    def settle(self, offers: Sequence[RoomOffer]) -> None:
        """Take back what `promise` offered; what was claimed is held by now."""
        for worker, vacancy in offers:
            worker.promised -= vacancy.credits
            self.refresh(worker)

    def _remove_from_kinds(self, worker: ConnectedWorker) -> None:
        kind = self._kinds.get(worker.node_types)
        if kind is not None:
            kind.pop(worker, None)
            if not kind:
                del self._kinds[worker.node_types]
