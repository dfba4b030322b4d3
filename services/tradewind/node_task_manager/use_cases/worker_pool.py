"""All workers connected to this process, and their room as it is offered to scripts."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from tradewind.node_task_manager.ports.work import Vacancy
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker

MAX_VACANCIES = 32
_MAX_OFFERED_TYPES = 4000
_RESERVED = 25
"""Room that a script leaves for the next one, which begins before it ends and makes node tasks ready as well."""

RoomOffer: TypeAlias = tuple[ConnectedWorker, Vacancy]
"""A worker, and its room as it is offered to a script."""
_Kind: TypeAlias = dict[ConnectedWorker, None]
_Answer = TypeVar("_Answer")


class WorkerPool:
    """All workers connected to this process.

    Workers with room stand in line by kind, that is by the node types they offer, so that many workers of one kind
    never hide the only one of another.
    """

    def __init__(self) -> None:
        self._workers: dict[str, ConnectedWorker] = {}
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._offering: Counter[str] = Counter()
        """How many workers offer each node type."""
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

    def offers(self, node_type: str) -> bool:
        """Say whether any worker offers a node type."""
        return node_type in self._offering

    def add(self, worker: ConnectedWorker) -> None:
        """Add a worker; an older stream of the same id is closed."""
        older = self._workers.get(worker.worker_id)
        if older is not None:
            self.remove(older)
            older.line.close("another stream of this worker was opened")
        self._workers[worker.worker_id] = worker
        self._offering.update(worker.node_types)
        self.changed(worker)
        self.refresh(worker)

    def remove(self, worker: ConnectedWorker) -> None:
        """Remove this very stream of a worker."""
        if worker in self:
            del self._workers[worker.worker_id]
            self._offering.subtract(worker.node_types)
            for name in worker.node_types:
                if not self._offering[name]:
                    del self._offering[name]
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
        offered: set[tuple[str, ...]] = set()
        types = 0
        while self._kinds and len(offers) < MAX_VACANCIES and types <= _MAX_OFFERED_TYPES:
            node_types, kind = next(iter(self._kinds.items()))
            worker = next(iter(kind))
            room = max(min(worker.room, _RESERVED), worker.room - _RESERVED) if reserve else worker.room
            offers.append(
                (worker, Vacancy(worker.worker_id, worker.sessions[shard], room, node_types, worker.capacity))
            )
            worker.promised += room
            if node_types not in offered:
                offered.add(node_types)
                types += len(node_types)
            self._remove_from_kinds(worker)
            if kind:
                self._kinds[node_types] = self._kinds.pop(node_types)
        for worker, _ in offers:
            if worker.room:
                self._kinds.setdefault(worker.node_types, {})[worker] = None
        return offers

    async def run_script(
        self, script: Callable[[Sequence[Vacancy]], Awaitable[_Answer]], offers: Sequence[RoomOffer]
    ) -> _Answer:
        """Return what a script answers that may fill these offers; they are settled if it raises."""
        try:
            return await script([vacancy for _, vacancy in offers])
        except BaseException:
            self.settle(offers)
            raise

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
