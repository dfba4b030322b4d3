"""Caches of results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tradewind.node_task_manager.domain.caching import Entry


@dataclass(frozen=True, slots=True)
class CacheLook:
    """What a look into a cache found: a `result` (JSON text), or neither, when the caller is now the one to work it
    out; or another one does, at most `busy_ms` more unless it goes on. `generation` goes along with what is put in."""

    generation: str
    result: str = ""
    busy_ms: int = 0


class CacheStore(Protocol):
    """Results by name. Whatever it holds may vanish at any time; then it is not there, and nothing worse."""

    async def look(self, entry: Entry, token: str, flight_ms: int) -> CacheLook:
        """Look for a result; where there is none and nobody works it out, `token` does so from now on, for
        `flight_ms`. The same token may ask again."""
        ...

    async def keep(self, entry: Entry, token: str, generation: str, flight_ms: int) -> bool:
        """Work on a result for `flight_ms` from now on, 0 for no longer; False when `token` does not."""
        ...

    async def fill(
        self, entry: Entry, token: str, generation: str, result: str, ttl_ms: int, max_entries: int
    ) -> tuple[bool, int]:
        """Put in what `token` has worked out. Return whether it was put in, which it is not when another works it out
        by now or the cache was cleared meanwhile, and how many gave way to it."""
        ...

    async def clear(self, name: str) -> int:
        """Forget all results of a cache and refuse those under way; return how many were taken out."""
        ...

    async def size(self, name: str) -> int:
        """Return how many results a cache holds."""
        ...


class CacheStatistics(Protocol):
    """Counts what became of look-ups, as `<cache>:<what>`."""

    async def add(self, counts: Mapping[str, int]) -> None:
        """Add to the counts."""
        ...

    async def read(self) -> dict[str, int]:
        """Return all counts."""
        ...
