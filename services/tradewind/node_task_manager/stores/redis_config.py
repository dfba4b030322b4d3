"""The system's configuration in Redis: whole in every shard, so that the scripts of each find what they need."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Redis
from tradewind.server.redis.script import Script

_SAVE = Script(__name__, "save_config", bool)


class RedisConfigStore:
    """A ConfigStore. The first shard decides which of two writers comes first; the others follow it."""

    def __init__(self, client: Redis, keys: Mapping[int, Keys]) -> None:
        self._client = client
        self._keys = keys

    async def load(self) -> SystemConfig:
        key = self._keys[0].system_config()
        body = await self._client.call(key, "HGET", key, "body")
        return SystemConfig() if body is None else msgspec.json.decode(body, type=SystemConfig)

    async def save(self, config: SystemConfig, expected: int) -> bool:
        first, *rest = self._keys.values()
        if not await self._save(first, config, expected):
            return False
        for keys in rest:
            await self._save(keys, config, -1)
        return True

    async def _save(self, keys: Keys, config: SystemConfig, expected: int) -> bool:
        args: dict[str, Any] = {
            "expected": expected,
            "version": config.version,
            "body": msgspec.json.encode(config).decode(),
            "weights": [part for user in config.user_weights.items() for part in user],
        }
        return await _SAVE(self._client, [keys.system_config(), keys.user_weights()], args)
