"""Results from caches: looking them up, so that each is worked out once.

An attempt that finds nothing gets a flight: it works the result out for all others that look for it meanwhile. A cache
that does not answer is treated as if there were none.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from tradewind.node_task_manager.domain.caching import CacheUse, Entry
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.caches import CacheStore
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.breaker import Breaker
from tradewind.node_task_manager.use_cases.cache_flights import CacheFlights, Outputs
from tradewind.node_task_manager.use_cases.cache_names import name_of, size_of
from tradewind.node_task_manager.use_cases.cache_statistics import CacheCounts
from tradewind.node_task_manager.use_cases.cache_waiters import CacheWaiters
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker, Offer
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool

_log = structlog.get_logger(__name__)
_LONGEST_WAIT_MS = 10_000
"""How long a node task waits before it checks again, in case the message that the result is there was lost."""
_BIG = 64 * 1024
"""Inputs above this size (bytes) take too long to read on the event loop."""


@dataclass(frozen=True, slots=True)
class Hit:
    """The outputs are in the cache."""

    outputs: Outputs


@dataclass(frozen=True, slots=True)
class Busy:
    """Another node task works out the same result; look again in `ms`."""

    ms: int


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
        self._config = config
        self._flight_ms = flight_ms
        self._timeout_s = timeout_s
        self._breaker = Breaker(clock)
        self._unknown: set[str] = set()
        self.counts = counts
        self.waiters = CacheWaiters(hasten)
        self.flights = CacheFlights(
            store, counts, self.waiters, self._breaker, pool, publish, flight_ms, timeout_s, clock
        )

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
            self._breaker.failed(error)
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
        ttl_ms = use.ttl_ms or round(settings.ttl * 1000)
        self.flights.begin(entry, token, found.generation, ttl_ms, settings.max_entries, holder)
        return None

    async def maintain(self) -> bool:
        """Maintain the flights, and store the counts. Return whether there was nothing to do."""
        quiet = not (self.waiters or self.counts.unsaved)
        quiet = await self.flights.maintain() and quiet
        self.waiters.expire()
        await self.counts.flush()
        return quiet

    async def clear(self, name: str) -> int:
        """Empty a cache and return how many results were removed; raises what the store raised."""
        return await self._store.clear(name)

    async def stop(self) -> None:
        """Finish storing results and counts."""
        await self.flights.stop()
        try:
            await self.counts.flush()
        except Exception as error:
            _log.warning("cache_counts_lost", error=error)
