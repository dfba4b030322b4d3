"""What a client asks about queues."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from tradewind.api.node_task_manager.v1 import config_pb2
from tradewind.api.node_task_manager.v1 import queue_pb2 as pb
from tradewind.client.caches import CacheSettings
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.queues import QueueStatistics, SystemConfig, queue_statistics_from, system_config_from
from tradewind.client.wire import Seconds, seconds_of, span


class QueueCalls:
    """Queues and their limits."""

    _connection: Connection

    async def queue_statistics(self, *, user_id: str = "", node_type: str = "") -> QueueStatistics:
        """Return what is waiting and running, by node type and user, and how many node tasks have ended."""
        request = build(pb.GetQueueStatsRequest, user_id=user_id, node_type=node_type)
        answer = await self._connection.call(self._connection.node_task_manager.GetQueueStats, request)
        return queue_statistics_from(answer)

    async def get_config(self) -> SystemConfig:
        """Return the system's configuration."""
        answer = await self._connection.call(
            self._connection.node_task_manager.GetConfig, config_pb2.GetConfigRequest()
        )
        return system_config_from(answer.config, answer.etag)

    async def update_config(
        self,
        *,
        max_running: int | None = None,
        max_running_per_user: int | None = None,
        max_running_per_flow: int | None = None,
        max_running_per_node_type: Mapping[str, int] | None = None,
        max_concurrent_tasks: int | None = None,
        user_weights: Mapping[str, float] | None = None,
        rates: Mapping[str, str] | None = None,
        enable_cache: bool | None = None,
        cache_ttl: Seconds | None = None,
        caches: Mapping[str, CacheSettings] | None = None,
        etag: str = "",
    ) -> SystemConfig:
        """Change the given parts of the system's configuration and return all of it; 0 removes a limit.

        `caches` adds caches to `screening` and `analysis`, or sets how these two work.

        Raises InvalidInput, and Aborted when the configuration has changed since `etag` was read, unless it already is
        as asked.
        """
        given: dict[str, Any] = {
            "max_running": max_running,
            "max_running_per_user": max_running_per_user,
            "max_running_per_flow": max_running_per_flow,
            "max_running_per_node_type": max_running_per_node_type,
            "max_concurrent_tasks": max_concurrent_tasks,
            "user_weights": user_weights,
            "rates": rates,
            "enable_cache": enable_cache,
            "cache_ttl": None if cache_ttl is None else span(seconds_of(cache_ttl)),
            "caches": None if caches is None else {name: each.to_message() for name, each in caches.items()},
        }
        fields = {name: value for name, value in given.items() if value is not None}
        if not fields:
            return await self.get_config()
        request = build(
            config_pb2.UpdateConfigRequest,
            config=build(config_pb2.SystemConfig, **fields),
            update_mask=FieldMask(paths=list(fields)),
            etag=etag,
        )
        answer = await self._connection.call(self._connection.node_task_manager.UpdateConfig, request)
        return system_config_from(answer.config, answer.etag)
