"""Results from caches: looking them up, working each out once, storing it, and notifying those who wait for it.

An attempt that finds nothing gets a flight: it works the result out for all others that look for it meanwhile. A flight
lasts as long as its attempt holds its lease here, and is renewed with it; when the attempt fails or is lost, one of the
waiting node tasks takes over. A cache that does not answer is treated as if there were none.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import structlog

from tradewind.node_task_manager.domain.caching import JITTER, MAX_BYTES, CacheUse, Entry
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.caches import CacheStore
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.breaker import Breaker
from tradewind.node_task_manager.use_cases.cache_names import name_of, size_of
from tradewind.node_task_manager.use_cases.cache_statistics import CacheCounts
from tradewind.node_task_manager.use_cases.cache_waiters import CacheWaiters
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker, Offer
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)
_LONGEST_WAIT_MS = 10_000
"""How long a node task waits before it checks again, in case the message that the result is there was lost."""
_RENEWED_SHARE = 2 / 3
"""A flight is renewed once less than this share of its time is left."""
_BIG = 64 * 1024
"""Inputs above this size (bytes) take too long to read on the event loop."""

Outputs: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """The outputs are in the cache."""

    outputs: Outputs


@dataclass(frozen=True, slots=True)
class Busy:
    """Another node task works out the same result; look again in `ms`."""

    ms: int


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


class ResultCaches:
    """The caches as this process uses them.

    `hasten(shard, task_ids)` makes postponed node tasks ready and returns which of them are; `publish(entry,
    filled)` tells other replicas that a result is there, or was given up. The store has `timeout_s` to answer, for a
    look-up at most half of the attempt's heartbeat and time limit.
    """

    def __init__(
        self,
        store: CacheStore,
        counts: CacheCounts,
        config: Callable[[], SystemConfig],
        pool: WorkerPool,
        hasten: Callable[[int, Sequence[str]], Awaitable[Sequence[str]]],
        publish: Callable[[Entry, bool], Awaitable[None]],
        flight_ms: int,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        # A lambda, since a simulation replaces time.monotonic after this has been imported.
        self._store = store
        self.counts = counts
        self._config = config
        self._pool = pool
        self._publish = publish
        self._timeout_s = timeout_s
        self._clock = clock
        self._flight_ms = flight_ms
        self.waiters = CacheWaiters(hasten)
        self._breaker = Breaker()
        self._flights: dict[str, _Flight] = {}
        self._unknown: set[str] = set()
        self._unsettled: list[_Flight] = []
        self._tasks = SideTasks()

    def use_of(self, ready: Ready, offers: Mapping[str, Offer]) -> CacheUse | None:
        """Return the cache that a node task's outputs may come from, None for no cache; `offers` are its worker's.

        Outputs after a wait depend on what ended the wait, which no cache knows.
        """
        if ready.assignment.resumed is not None:
            return None
        use = ready.node.cache
        if use is None and offers:
            offer = offers.get(ready.node.node_type)
            use = offer.cache if offer is not None else None
        if use is None or self._config().cache(use.name) is not None:
            return use
        if use.name not in self._config().all_caches and use.name not in self._unknown:
            self._unknown.add(use.name)
            _log.warning("cache_unknown", cache=use.name)
        return None

    @property
    def in_flight(self) -> bool:
        """Whether any attempts work out results for others."""
        return bool(self._flights)

    async def look_up(
        self, ready: Ready, use: CacheUse, version: str, holder: ConnectedWorker | None
    ) -> Hit | Busy | None:
        """Look up the outputs of a node task; None when its worker has to work them out, for others as well."""
        shard, given = ready.shard, ready.assignment
        self.waiters.forget(shard, given.task_id)
        settings = self._config().cache(use.name)
        if settings is None:
            return None
        if self._breaker.is_open:
            self.counts.add(use.name, "bypassed")
            return None
        if not use.key and size_of(ready) > _BIG:
            entry = await asyncio.to_thread(name_of, ready, use, version)
        else:
            entry = name_of(ready, use, version)
        token = given.nonce
        # News may overtake the answer of the store, so the node task waits for it already.
        self.waiters.add(entry, shard, given.task_id)
        # The clocks of the attempt run already: its worker gets at least half of their time.
        halves = [ms / 2000 for ms in (ready.node.heartbeat_ms, ready.node.start_to_close_ms) if ms]
        try:
            async with asyncio.timeout(min([self._timeout_s, *halves])):
                found = await self._store.look_up(entry, token, self._flight_ms)
            outputs = msgspec.json.decode(found.result, type=Outputs) if found.result else None
        except BaseException as error:
            self.waiters.forget(shard, given.task_id)
            if not isinstance(error, Exception):
                raise
            self._failed(error)
            self.counts.add(use.name, "bypassed")
            return None
        self._breaker.succeeded()
        if found.busy_ms and outputs is None:
            self.counts.add(use.name, "waits")
            return Busy(min(found.busy_ms, _LONGEST_WAIT_MS) + 1)
        self.waiters.forget(shard, given.task_id)
        if outputs is not None:
            self.counts.add(use.name, "hits")
            return Hit(outputs)
        self.counts.add(use.name, "misses")
        ttl_ms, until = use.ttl_ms or round(settings.ttl * 1000), self._clock() + self._flight_ms / 1000
        self._flights[token] = _Flight(entry, token, found.generation, ttl_ms, settings.max_entries, holder, until)
        return None

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
                self._tasks.begin(self._renew_flight(flight))

    async def maintain(self) -> bool:
        """Renew flights of attempts that go on, end the others and those that could not be ended before, and store the
        counts. Return whether there was nothing to do."""
        quiet = not (self._flights or self._unsettled or self.waiters or self.counts.unsaved)
        now = self._clock()
        await asyncio.gather(*map(self._renew_flight, self._due_flights(now)))
        if self._unsettled and not self._breaker.is_open:
            unsettled, self._unsettled = self._unsettled, []
            await asyncio.gather(*(self._settle(flight, None) for flight in unsettled if now < flight.until))
        self.waiters.expire()
        await self.counts.flush()
        return quiet

    def _due_flights(self, now: float) -> list[_Flight]:
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

    def settled_elsewhere(self, entry: Entry, *, filled: bool) -> None:
        """Take the message of a replica that a result is there (`filled`), or will not come."""
        self._tasks.begin(self.waiters.notify(entry, filled=filled))

    async def clear(self, name: str) -> int:
        """Empty a cache and return how many results were removed; raises what the store raised."""
        return await self._store.clear(name)

    async def stop(self) -> None:
        """Finish storing results and counts."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self._tasks.end()
        try:
            await self.counts.flush()
        except Exception as error:
            _log.warning("cache_counts_lost", error=error)

    def _holds(self, worker_id: str, nonce: str) -> bool:
        worker = self._pool.get(worker_id)
        return worker is not None and nonce in worker.held

    async def _renew_flight(self, flight: _Flight) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                kept = await self._store.extend(flight.entry, flight.token, flight.generation, self._flight_ms)
        except Exception as error:
            self._failed(error)
            return
        if kept:
            flight.until = self._clock() + self._flight_ms / 1000
        else:
            self._flights.pop(flight.token, None)

    async def _settle(self, flight: _Flight, outputs: Outputs | None) -> None:
        """End a flight, with a result or without, and notify the node tasks that wait for it."""
        cache = flight.entry.cache
        filled = False
        try:
            async with asyncio.timeout(self._timeout_s):
                if outputs is not None and _size(outputs) > MAX_BYTES:
                    self.counts.add(cache, "oversize")
                    outputs = None
                if outputs is None:
                    await self._store.extend(flight.entry, flight.token, flight.generation, 0)
                else:
                    ttl_ms = round(flight.ttl_ms * (1 - JITTER * random.random()))
                    filled, evicted = await self._store.fill(
                        flight.entry,
                        flight.token,
                        flight.generation,
                        msgspec.json.encode(outputs).decode(),
                        ttl_ms,
                        flight.max_entries,
                    )
                    self.counts.add(cache, "fills", int(filled))
                    self.counts.add(cache, "evicted", evicted)
        except Exception as error:
            # It is ended later; else all who wait for it would have to wait until it lapses.
            self._unsettled.append(flight)
            self._failed(error)
        await self.waiters.notify(flight.entry, filled=filled)
        await self._publish(flight.entry, filled)

    def _failed(self, error: Exception) -> None:
        if not self._breaker.is_open:
            _log.warning("cache_unavailable", error=error)
        self._breaker.failed()


def _size(outputs: Outputs) -> int:
    return sum(len(handle) + len(value.encode()) for handle, value in outputs)
