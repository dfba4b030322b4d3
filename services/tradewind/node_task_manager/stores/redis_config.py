"""The system's configuration in Redis: whole in every shard, so that the scripts of each find what they need."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

_SAVE = Script(__name__, "save_config", bool)


class RedisConfigStore:
    """A ConfigStore. The first shard decides which of two writers comes first; the others follow it.

    If a writer dies before it has written to all of them, whoever next loads its version does the rest.
    """

    def __init__(self, client: Client, keys: Mapping[int, Keys]) -> None:
        self._client = client
        self._keys = keys
        self._spread_version = 0
        """A version that all shards have, or had."""

    async def load(self) -> SystemConfig:
        key = self._keys[0].system_config()
        body = await self._client.call(key, "HGET", key, "body")
        config = SystemConfig() if body is None else msgspec.json.decode(body, type=SystemConfig)
        if config.version != self._spread_version:
            await self._spread(config)
        return config

    async def save(self, config: SystemConfig, expected: int) -> bool:
        if not await self._save(self._keys[0], config, expected):
            return False
        await self._spread(config)
        return True

    async def _spread(self, config: SystemConfig) -> None:
        """Write a configuration to the other shards, unless they have it or a newer one."""
        for shard, keys in self._keys.items():
            if shard:
                await self._save(keys, config, -1)
        self._spread_version = config.version

    async def _save(self, keys: Keys, config: SystemConfig, expected: int) -> bool:
        args: dict[str, Any] = {
            "expected": expected,
            "version": config.version,
            "body": msgspec.json.encode(config).decode(),
            "weights": [part for user in config.user_weights.items() for part in user],
        }
        return await _SAVE(self._client, [keys.system_config(), keys.user_weights()], args)
