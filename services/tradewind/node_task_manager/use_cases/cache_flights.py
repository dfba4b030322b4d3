"""Attempts that work out results for others: storing what they return, and notifying those who wait for it.

A flight lasts as long as its attempt holds its lease here, and is renewed with it; when the attempt fails or is lost,
one of the waiting node tasks takes over.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tradewind.node_task_manager.domain.caching import JITTER, MAX_BYTES, Entry
from tradewind.node_task_manager.ports.caches import CacheStore
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.use_cases.breaker import Breaker
from tradewind.node_task_manager.use_cases.cache_statistics import CacheCounts
from tradewind.node_task_manager.use_cases.cache_waiters import CacheWaiters
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.side_tasks import SideTasks

_RENEWED_SHARE = 2 / 3
"""A flight is renewed once less than this share of its time is left."""

Outputs: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(eq=False)
class _Flight:
    """An attempt that works out a result for others; `holder` is None for a worker without a stream. Times in s."""

    entry: Entry
    token: str
    generation: str
    ttl_ms: int
    max_entries: int
    holder: ConnectedWorker | None
    until: float
    ending: bool = False


class CacheFlights:
    """The flights of this process; their tokens are the nonces of their attempts.

    `publish(entry, filled)` tells other replicas that a result is there, or was given up. The store has `timeout_s` to
    answer.
    """

    def __init__(
        self,
        store: CacheStore,
        counts: CacheCounts,
        waiters: CacheWaiters,
        breaker: Breaker,
        pool: WorkerPool,
        publish: Callable[[Entry, bool], Awaitable[None]],
        flight_ms: int,
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._counts = counts
        self._waiters = waiters
        self._breaker = breaker
        self._pool = pool
        self._publish = publish
        self._flight_ms = flight_ms
        self._timeout_s = timeout_s
        self._clock = clock
        self._flights: dict[str, _Flight] = {}
        self._unsettled: list[_Flight] = []
        self._tasks = SideTasks()

    def __len__(self) -> int:
        return len(self._flights)

    def begin(
        self,
        entry: Entry,
        token: str,
        generation: str,
        ttl_ms: int,
        max_entries: int,
        holder: ConnectedWorker | None,
    ) -> None:
        """Note that the store knows of a flight from now on."""
        until = self._clock() + self._flight_ms / 1000
        self._flights[token] = _Flight(entry, token, generation, ttl_ms, max_entries, holder, until)

    def ending(self, nonces: Sequence[str]) -> None:
        """Note that outcomes of these attempts are about to be stored; their workers do not hold them any more."""
        for nonce in nonces:
            if nonce in self._flights:
                self._flights[nonce].ending = True

    def ended(self, outcome: Outcome, refused: str) -> None:
        """Store the result of an attempt once its outcome is stored, or let another attempt work it out."""
        flight = self._flights.pop(outcome.nonce, None)
        if flight is not None:
            completed = outcome.kind is OutcomeKind.COMPLETED and not refused
            self._tasks.begin(self._settle(flight, outcome.outputs if completed else None))

    def dropped(self, nonce: str) -> None:
        """Note that the worker that an attempt was given to will not make it."""
        flight = self._flights.pop(nonce, None)
        if flight is not None:
            self._tasks.begin(self._settle(flight, None))

    def renewed(self, nonces: Sequence[str]) -> None:
        """Note that workers without streams have renewed their leases."""
        for nonce in nonces:
            flight = self._flights.get(nonce)
            if flight is not None:
                self._tasks.begin(self._renew(flight))

    def settled_elsewhere(self, entry: Entry, *, filled: bool) -> None:
        """Take the message of a replica that a result is there (`filled`), or will not come."""
        self._tasks.begin(self._waiters.notify(entry, filled=filled))

    async def maintain(self) -> bool:
        """Renew flights of attempts that go on, end the others and those that could not be ended before.

        Return whether there were none.
        """
        quiet = not (self._flights or self._unsettled)
        now = self._clock()
        await asyncio.gather(*map(self._renew, self._due(now)))
        if self._unsettled and not self._breaker.is_open:
            unsettled, self._unsettled = self._unsettled, []
            await asyncio.gather(*(self._settle(flight, None) for flight in unsettled if now < flight.until))
        return quiet

    async def stop(self) -> None:
        """Finish storing results."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self._tasks.end()

    def _due(self, now: float) -> list[_Flight]:
        """Return the flights that are due for renewal, after ending those that have lapsed or lost their attempt."""
        due = []
        for nonce, flight in list(self._flights.items()):
            if now >= flight.until:
                del self._flights[nonce]
            elif flight.holder is not None and not flight.ending:
                if not self._holds(flight.holder.worker_id, nonce):
                    self.dropped(nonce)
                elif flight.until - now < self._flight_ms / 1000 * _RENEWED_SHARE:
                    due.append(flight)
        return due

    def _holds(self, worker_id: str, nonce: str) -> bool:
        worker = self._pool.get(worker_id)
        return worker is not None and nonce in worker.held

    async def _renew(self, flight: _Flight) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                kept = await self._store.extend(flight.entry, flight.token, flight.generation, self._flight_ms)
        except Exception as error:
            self._breaker.failed(error)
            return
        if kept:
            flight.until = self._clock() + self._flight_ms / 1000
        else:
            self._flights.pop(flight.token, None)

    async def _settle(self, flight: _Flight, outputs: Outputs | None) -> None:
        """End a flight, with a result or without, and notify the node tasks that wait for it."""
        filled = False
        try:
            async with asyncio.timeout(self._timeout_s):
                if outputs is not None and _size(outputs) > MAX_BYTES:
                    self._counts.add(flight.entry.cache, "oversize")
                    outputs = None
                if outputs is None:
                    await self._store.extend(flight.entry, flight.token, flight.generation, 0)
                else:
                    filled = await self._fill(flight, outputs)
        except Exception as error:
            # It is ended later; else all who wait for it would have to wait until it lapses.
            self._unsettled.append(flight)
            self._breaker.failed(error)
        await self._waiters.notify(flight.entry, filled=filled)
        await self._publish(flight.entry, filled)

    async def _fill(self, flight: _Flight, outputs: Outputs) -> bool:
        """Store a result; return whether it is there, since a flight that has lapsed stores none."""
        text = msgspec.json.encode(outputs).decode()
        ttl_ms = round(flight.ttl_ms * (1 - JITTER * random.random()))
        filled, evicted = await self._store.fill(
            flight.entry, flight.token, flight.generation, text, ttl_ms, flight.max_entries
        )
        self._counts.add(flight.entry.cache, "fills", int(filled))
        self._counts.add(flight.entry.cache, "evicted", evicted)
        return filled


def _size(outputs: Outputs) -> int:
    return sum(len(handle) + len(value.encode()) for handle, value in outputs)
