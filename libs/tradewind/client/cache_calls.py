"""What a client asks about caches."""

from tradewind.api.node_task_manager.v1 import cache_pb2 as pb
from tradewind.client.caches import CacheStatistics, cache_statistics_from
from tradewind.client.connection import Connection
from tradewind.client.messages import build


class CacheCalls:
    """Caches of results."""

    _connection: Connection

    async def cache_statistics(self, name: str = "") -> list[CacheStatistics]:
        """Return how much one cache, or every cache, is used, by name. Raises InvalidInput for an unknown cache."""
        answer = await self._connection.call(
            self._connection.node_task_manager.GetCacheStats, build(pb.GetCacheStatsRequest, name=name)
        )
        return [cache_statistics_from(each) for each in answer.caches]

    async def clear_cache(self, name: str) -> int:
        """Empty a cache, for everybody, and return how many results it held. Raises InvalidInput."""
        answer = await self._connection.call(
            self._connection.node_task_manager.ClearCache, build(pb.ClearCacheRequest, name=name)
        )
        return answer.removed
