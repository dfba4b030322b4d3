"""Keeping on record which workers are connected here, for every replica to read."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import structlog

from tradewind.node_task_manager.ports.connected import ConnectedWorkers, ConnectionChanges, LastOffer
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.beats import beat, next_beat
from tradewind.server.clock import Clock
from tradewind.server.incidents import IncidentLog

_log = structlog.get_logger(__name__)
_REFRESH_S = 10.0
_KEEP_MS = 30_000
"""How long what a replica has recorded stays after it was killed."""
_RETRY_S = 1.0
_BATCH = 200
_CLAIMS_MS = 60_000
_MAX_CLAIMERS = 10_000


class RecordConnections:
    """Records workers as they come and go, and confirms the record now and then.

    A worker that answers no pings is not connected; a worker that has no stream and claims by calls is connected for a
    minute from each claim.
    """

    def __init__(
        self, connected: ConnectedWorkers, pool: WorkerPool, replica: str, clock: Clock, refresh_s: float = _REFRESH_S
    ) -> None:
        self._connected = connected
        self._pool = pool
        self._replica = replica
        self._clock = clock
        self._refresh_s = refresh_s
        self._recorded: dict[str, tuple[int, frozenset[str]]] = {}
        """Which workers are connected, since when, and what they offer."""
        self._offering: Counter[str] = Counter()
        self._claimers: dict[str, tuple[int, frozenset[str]]] = {}
        self._changed: set[str] = set()
        self._workers: dict[str, int] = {}
        self._node_types: dict[str, LastOffer | None] = {}
        """The changes to these two have yet to be published."""
        self._whole = True
        self._wake = asyncio.Event()
        self._failing = IncidentLog(_log, "connections_not_recorded", "connections_recorded_again")
        pool.on_change(self._mark_changed)

    def claimed(self, worker_id: str, node_types: frozenset[str]) -> None:
        """Note that a worker without a stream has claimed node tasks of these types."""
        known = self._claimers.pop(worker_id, None)
        self._claimers[worker_id] = self._clock.now_ms(), node_types
        if known is None or known[1] != node_types:
            self._mark_changed(worker_id)
        if len(self._claimers) > _MAX_CLAIMERS:
            self._claimers.pop(first := next(iter(self._claimers)))
            self._mark_changed(first)

    async def run(self) -> None:
        """Keep the record up to date; never ends."""
        while True:
            self._wake.clear()
            try:
                await self._record()
            except Exception as error:
                self._failing.note_error(error)
                await beat(_RETRY_S)
                continue
            try:
                async with asyncio.timeout_at(next_beat(self._refresh_s)):
                    await self._wake.wait()
            except TimeoutError:
                self._expire_claimers()

    async def leave(self) -> None:
        """Record that nobody is connected here any more."""
        self._changed.clear()
        for worker_id in list(self._recorded):
            self._forget(worker_id, self._clock.now_ms())
        # If this fails, the record lapses by itself.
        with suppress(Exception):
            await self._record()
            await self._connected.record(self._replica, 0, ConnectionChanges({}, {}))

    def _mark_changed(self, worker_id: str) -> None:
        self._changed.add(worker_id)
        self._wake.set()

    def _expire_claimers(self) -> None:
        """Forget workers that have claimed nothing for too long."""
        oldest_ms = self._clock.now_ms() - _CLAIMS_MS
        for worker_id, (claimed_ms, _) in list(self._claimers.items()):
            if claimed_ms >= oldest_ms:
                return
            del self._claimers[worker_id]
            self._forget(worker_id, claimed_ms)
            self._changed.add(worker_id)

    def _collect_changes(self) -> None:
        """Work out what to publish about workers that have changed."""
        changed, self._changed = self._changed, set()
        for worker_id in changed:
            worker = self._pool.get(worker_id)
            offers: frozenset[str] | None = None
            if worker is not None and worker.reachable:
                offers = frozenset(worker.node_types)
            elif worker_id in self._claimers:
                offers = self._claimers[worker_id][1]
            if worker_id in self._recorded and self._recorded[worker_id][1] != offers:
                self._forget(worker_id, self._clock.now_ms())
            if offers is not None and worker_id not in self._recorded:
                self._recorded[worker_id] = self._clock.now_ms(), offers
                self._workers[worker_id] = self._recorded[worker_id][0]
                self._node_types.update(dict.fromkeys(offers - self._offering.keys()))
                self._offering.update(offers)

    def _forget(self, worker_id: str, at_ms: int) -> None:
        _, offers = self._recorded.pop(worker_id, (0, frozenset()))
        self._workers[worker_id] = 0
        self._offering.subtract(offers)
        for node_type in offers:
            if not self._offering[node_type]:
                del self._offering[node_type]
                self._node_types[node_type] = LastOffer(worker_id, at_ms)

    async def _record(self) -> None:
        self._collect_changes()
        workers, self._workers = self._workers, {}
        node_types, self._node_types = self._node_types, {}
        if self._whole:
            workers = {worker_id: since_ms for worker_id, (since_ms, _) in self._recorded.items()}
            node_types = {**node_types, **dict.fromkeys(self._offering)}
        whole, self._whole = self._whole, True
        try:
            for some, types in _batches(workers, node_types):
                if not await self._connected.record(self._replica, _KEEP_MS, ConnectionChanges(some, types, whole)):
                    self._wake.set()
                    return
                whole = False
            self._whole = False
        finally:
            if self._whole:
                # Telling the whole names who is here, but only this names who was the last to offer a node type.
                self._node_types = {**node_types, **self._node_types}


def _batches(
    workers: dict[str, int], node_types: dict[str, LastOffer | None]
) -> Iterator[tuple[dict[str, int], dict[str, LastOffer | None]]]:
    """Yield both in pieces that one script takes; one empty piece when there is nothing."""
    listed, types = list(workers.items()), list(node_types.items())
    for first in range(0, max(1, len(listed), len(types)), _BATCH):
        yield dict(listed[first : first + _BATCH]), dict(types[first : first + _BATCH])
