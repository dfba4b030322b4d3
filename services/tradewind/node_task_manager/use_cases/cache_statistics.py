"""Counting the outcomes of look-ups: in memory at once, in the store within seconds."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from tradewind.node_task_manager.domain.caching import CacheSettings
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.metrics import CACHE_COUNTS, CACHE_EVENTS
from tradewind.node_task_manager.ports.caches import CacheStatistics, CacheStore


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """A cache, its size and its counts so far; `settings` is None when the configuration no longer has it."""

    name: str
    settings: CacheSettings | None
    entries: int
    counts: dict[str, int]


class CacheCounts:
    """Takes counts and reports them."""

    def __init__(self, store: CacheStore, statistics: CacheStatistics, config: Callable[[], SystemConfig]) -> None:
        self._store = store
        self._statistics = statistics
        self._config = config
        self._counts: Counter[str] = Counter()
        self._lock = asyncio.Lock()

    @property
    def unsaved(self) -> bool:
        """Whether there are counts that are not in the store yet."""
        return bool(self._counts)

    def add(self, cache: str, outcome: str, by: int = 1) -> None:
        """Count one of `CACHE_COUNTS`."""
        if by:
            self._counts[f"{cache}:{outcome}"] += by
            CACHE_EVENTS.labels(outcome).inc(by)

    async def flush(self) -> None:
        """Store the counts; raises what the store raised, and then keeps them for the next time."""
        async with self._lock:
            if not self._counts:
                return
            counts, self._counts = self._counts, Counter()
            try:
                await self._statistics.add(counts)
            except BaseException:
                self._counts.update(counts)
                raise

    async def usage(self, name: str) -> list[CacheUsage]:
        """Return the usage of one cache, or with "" of all that are known or have been used, ordered by name."""
        await self.flush()
        counts = await self._statistics.read()
        # The settings of a cache do not depend on whether caches are enabled.
        known = replace(self._config(), enable_cache=True).cache
        names = {each.partition(":")[0] for each in counts} | self._config().all_caches.keys()
        return [
            CacheUsage(
                each,
                known(each),
                await self._store.size(each),
                {outcome: counts.get(f"{each}:{outcome}", 0) for outcome in CACHE_COUNTS},
            )
            for each in sorted({name} if name else names)
        ]
