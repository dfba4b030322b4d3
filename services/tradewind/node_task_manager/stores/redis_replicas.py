"""The list of node task managers, in Redis."""

from collections.abc import Callable, Sequence

from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

_CHECK_IN = Script(__name__, "check_in_replica", list[str])


class RedisReplicas:
    """Implements Replicas; `clock` returns 0 for the store's own time."""

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int]) -> None:
        self._client = client
        self._keys = [keys.replicas()]
        self._clock = clock

    async def check_in(self, name: str, keep_ms: int) -> Sequence[str]:
        return await _CHECK_IN(self._client, self._keys, {"now": self._clock(), "name": name, "keep": keep_ms})

    async def leave(self, name: str) -> None:
        await self.check_in(name, 0)
