"""Caches in Redis, in the shards' store or in one of their own; and the counts of their use."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.ports.caches import CacheLookup
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

_LOOK_UP = Script(__name__, "look_up_cache", CacheLookup)
_EXTEND = Script(__name__, "extend_flight", bool)
_FILL = Script(__name__, "fill_cache", tuple[bool, int])
_CLEAR = Script(__name__, "clear_cache", tuple[int, bool])
_COUNT = Script(__name__, "count_cached", int)
_AT_ONCE = 500


class RedisCacheStore:
    """A CacheStore. Results are spread over the tags of all shards by their digest; `clock` returns 0 for the store's
    own time."""

    def __init__(self, client: Client, keys: Mapping[int, Keys], clock: Callable[[], int]) -> None:
        self._client = client
        self._keys = tuple(keys.values())
        self._clock = clock

    async def look_up(self, entry: Entry, token: str, flight_ms: int) -> CacheLookup:
        keys = self._keys_of(entry)
        args = {"now": self._clock(), "fresh": secrets.token_hex(8), "token": token, "flight_ms": flight_ms}
        named = [keys.cached(entry), keys.cache_flight(entry), keys.cache_generation(entry.cache)]
        return await _LOOK_UP(self._client, named, args)

    async def extend(self, entry: Entry, token: str, generation: str, flight_ms: int) -> bool:
        args = {"now": self._clock(), "token": token, "generation": generation, "flight_ms": flight_ms}
        keys = self._keys_of(entry)
        return await _EXTEND(self._client, [keys.cache_flight(entry), keys.cache_generation(entry.cache)], args)

    async def fill(
        self, entry: Entry, token: str, generation: str, result: str, ttl_ms: int, max_entries: int
    ) -> tuple[bool, int]:
        keys = self._keys_of(entry)
        args: dict[str, Any] = {
            "now": self._clock(),
            "token": token,
            "generation": generation,
            "result": result,
            "ttl_ms": ttl_ms,
            "max_entries": max_entries,
        }
        named = [keys.cached(entry), keys.cache_flight(entry), keys.cache_generation(entry.cache)]
        return await _FILL(self._client, [*named, keys.cache_index(entry.cache)], args)

    async def clear(self, name: str) -> int:
        removed = 0
        for keys in self._keys:
            fresh: str | None = secrets.token_hex(8)
            more = True
            while more:
                named = [keys.cache_generation(name), keys.cache_index(name)]
                taken, more = await _CLEAR(self._client, named, {"fresh": fresh, "most": _AT_ONCE})
                removed, fresh = removed + taken, None
        return removed

    async def size(self, name: str) -> int:
        args = {"now": self._clock()}
        return sum([await _COUNT(self._client, [keys.cache_index(name)], args) for keys in self._keys])

    def _keys_of(self, entry: Entry) -> Keys:
        return self._keys[crc32(str(entry).encode()) % len(self._keys)]


class RedisCacheStatistics:
    """CacheStatistics in one hash of the first shard."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._key = keys.cache_stats()

    async def add(self, counts: Mapping[str, int]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for name, count in counts.items():
            pipeline.execute_command("HINCRBY", self._key, name, count)
        await pipeline.execute()

    async def read(self) -> dict[str, int]:
        found = await self._client.hgetall(self._key)
        return {name.decode(): int(count) for name, count in found.items()}
