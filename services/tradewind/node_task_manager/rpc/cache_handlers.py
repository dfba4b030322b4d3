"""The part of NodeTaskManagerService for caches: parse, call the use case, answer."""

from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import cache_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.node_task_manager.rpc import cache_mapping
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.system_config import FollowConfig
from tradewind.server.faults import InvalidInput
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context


@dataclass(eq=False, kw_only=True)
class CacheHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """Statistics of caches, and emptying them."""

    caches: ResultCaches
    config: FollowConfig

    async def GetCacheStats(self, request: pb2.GetCacheStatsRequest, context: Context) -> pb2.GetCacheStatsResponse:
        if request.name:
            await self._require(request.name)
        usages = await self.caches.counts.usage(request.name)
        return pb2.GetCacheStatsResponse(
            caches=[cache_mapping.stats_message(each) for each in usages], enabled=self.config.config.enable_cache
        )

    async def ClearCache(self, request: pb2.ClearCacheRequest, context: Context) -> pb2.ClearCacheResponse:
        await self._require(request.name)
        return pb2.ClearCacheResponse(removed=await self.caches.clear(request.name))

    async def _require(self, name: str) -> None:
        require_identifiers(name=name)
        known = await self.config.caches(name)
        if name not in known:
            raise InvalidInput([cache_mapping.unknown_cache("name", name, known)])
