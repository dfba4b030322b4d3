"""Caches in memory: the specification of those in Redis."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.ports.caches import CacheLookup


@dataclass(frozen=True, slots=True)
class _Stored:
    generation: str
    until: int
    value: str


class MemoryCacheStore:
    """A CacheStore; `clock` returns epoch ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._numbers = map(str, itertools.count(1))
        self._generations: dict[str, str] = defaultdict(lambda: next(self._numbers))
        self._results: dict[Entry, _Stored] = {}
        self._flights: dict[Entry, _Stored] = {}

    async def look_up(self, entry: Entry, token: str, flight_ms: int) -> CacheLookup:
        generation = self._generations[entry.cache]
        if found := self._valid(self._results, entry):
            return CacheLookup(generation, found.value)
        flight = self._valid(self._flights, entry)
        if flight and flight.value != token:
            return CacheLookup(generation, busy_ms=flight.until - self._clock())
        self._flights[entry] = _Stored(generation, self._clock() + flight_ms, token)
        return CacheLookup(generation)

    async def extend(self, entry: Entry, token: str, generation: str, flight_ms: int) -> bool:
        if not self._holds_flight(entry, token, generation):
            return False
        self._flights[entry] = _Stored(generation, self._clock() + flight_ms, token)
        return True

    async def fill(
        self, entry: Entry, token: str, generation: str, result: str, ttl_ms: int, max_entries: int
    ) -> tuple[bool, int]:
        if not self._holds_flight(entry, token, generation):
            return False, 0
        del self._flights[entry]
        self._results[entry] = _Stored(generation, self._clock() + ttl_ms, result)
        by_end = sorted(self._entries_of(entry.cache), key=lambda each: (self._results[each].until, each.digest))
        evicted = by_end[: max(0, len(by_end) - max_entries)]
        for each in evicted:
            del self._results[each]
        return True, len(evicted)

    async def clear(self, name: str) -> int:
        valid = self._entries_of(name)
        for entry in valid:
            del self._results[entry]
        self._generations[name] = next(self._numbers)
        return len(valid)

    async def size(self, name: str) -> int:
        return len(self._entries_of(name))

    def _entries_of(self, name: str) -> list[Entry]:
        return [entry for entry in self._results if entry.cache == name and self._valid(self._results, entry)]

    def _holds_flight(self, entry: Entry, token: str, generation: str) -> bool:
        flight = self._valid(self._flights, entry)
        return flight is not None and (flight.value, flight.generation) == (token, generation)

    def _valid(self, stored: dict[Entry, _Stored], entry: Entry) -> _Stored | None:
        found = stored.get(entry)
        if found is None or found.generation != self._generations[entry.cache] or found.until <= self._clock():
            return None
        return found


class MemoryCacheStatistics:
    """Implements CacheStatistics."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    async def add(self, counts: Mapping[str, int]) -> None:
        self._counts.update(counts)

    async def read(self) -> dict[str, int]:
        return dict(self._counts)
