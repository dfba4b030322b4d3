"""Caches of results: how they are set up, and how much they are used."""

from dataclasses import dataclass
from datetime import timedelta

from tradewind.api.node_task_manager.v1 import cache_pb2


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The longest time that a cache's results are valid (None: the common time), and how many it keeps per shard."""

    ttl: timedelta | None = None
    max_entries: int = 10_000

    def to_message(self) -> cache_pb2.CacheSettings:
        """Return the settings as a message."""
        message = cache_pb2.CacheSettings(max_entries=self.max_entries)
        if self.ttl is not None:
            message.ttl.FromTimedelta(self.ttl)
        return message


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What became of a cache's look-ups so far; `ttl` is None for a cache that is no longer configured.

    Node tasks were answered from it (`hits`), found nothing and ran (`misses`), waited for another node task to do the
    same work (`waits`), or ran without a look-up because it could not be reached (`bypassed`). Results were put in
    (`fills`), were too large for it (`oversize`), or were removed to make room (`evicted`); it holds `entries` now.
    """

    name: str
    ttl: timedelta | None
    entries: int
    hits: int
    misses: int
    waits: int
    fills: int
    oversize: int
    evicted: int
    bypassed: int

    @property
    def hit_rate(self) -> float | None:
        """The share of node tasks that it answered; None when there were none."""
        lookups = self.hits + self.misses + self.bypassed
        return self.hits / lookups if lookups else None


_COUNTS = ("entries", "hits", "misses", "waits", "fills", "oversize", "evicted", "bypassed")


def cache_settings_from(message: cache_pb2.CacheSettings) -> CacheSettings:
    """Read settings."""
    ttl = message.ttl.ToTimedelta() if message.HasField("ttl") else None
    return CacheSettings(ttl, message.max_entries)


def cache_statistics_from(message: cache_pb2.CacheStats) -> CacheStatistics:
    """Read statistics."""
    ttl = message.ttl.ToTimedelta() if message.HasField("ttl") else None
    return CacheStatistics(message.name, ttl, **{name: getattr(message, name) for name in _COUNTS})
