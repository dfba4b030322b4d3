"""Caches of results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tradewind.node_task_manager.domain.caching import Entry


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """What a look into a cache found: a `result` (JSON text), or that another caller works it out, for `busy_ms` more
    unless it asks for longer; with neither, it is up to this caller. `generation` goes with what the caller puts in."""

    generation: str
    result: str = ""
    busy_ms: int = 0


class CacheStore(Protocol):
    """Results by name. Anything in it may vanish at any time, which does no harm."""

    async def look_up(self, entry: Entry, token: str, flight_ms: int) -> CacheLookup:
        """Look for a result; if there is none and nobody works it out, `token` is to do so for the next `flight_ms`.
        The same token may ask again."""
        ...

    async def extend(self, entry: Entry, token: str, generation: str, flight_ms: int) -> bool:
        """Work on a result for another `flight_ms`, or stop with 0; False when `token` does not work on it."""
        ...

    async def fill(
        self, entry: Entry, token: str, generation: str, result: str, ttl_ms: int, max_entries: int
    ) -> tuple[bool, int]:
        """Store the result that `token` has worked out. Return whether it was stored (it is not when another token
        works it out by now, or the cache has been cleared) and how many results it displaced."""
        ...

    async def clear(self, name: str) -> int:
        """Forget all results of a cache and refuse those under way; return how many were removed."""
        ...

    async def size(self, name: str) -> int:
        """Return how many results a cache holds."""
        ...


class CacheStatistics(Protocol):
    """Counts the outcomes of look-ups, as `<cache>:<outcome>`."""

    async def add(self, counts: Mapping[str, int]) -> None:
        """Add to the counts."""
        ...

    async def read(self) -> dict[str, int]:
        """Return all counts."""
        ...
