"""All of the node task manager's stores in memory; nothing outlives the process."""

from collections.abc import Callable, Mapping

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.doctor import CacheDoctor, ShardDoctor
from tradewind.node_task_manager.stores.memory.caches import MemoryCacheStatistics, MemoryCacheStore
from tradewind.node_task_manager.stores.memory.connected import MemoryConnectedWorkers
from tradewind.node_task_manager.stores.memory.replicas import MemoryReplicas
from tradewind.node_task_manager.stores.memory.shard import MemoryShard
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.store_link import NoLink


class MemoryConfigStore:
    """Implements ConfigStore."""

    def __init__(self) -> None:
        self._config = SystemConfig()

    async def load(self) -> SystemConfig:
        return self._config

    async def save(self, config: SystemConfig, expected: int) -> bool:
        if self._config.version != expected:
            return False
        self._config = config
        return True


class MemoryStores(NoLink):
    """Implements Stores, for a single shard and a single replica; `clock` returns epoch ms."""

    def __init__(self, limits: Limits, clock: Callable[[], int]) -> None:
        shard = MemoryShard(limits, clock)
        self.shards = {0: Shard(0, shard, shard, shard, shard, shard, shard)}
        # Nothing here is kept twice, so nothing can contradict anything else.
        self.doctors: Mapping[int, ShardDoctor] = {}
        self.cache_doctors: Mapping[int, CacheDoctor] = {}
        self.caches = MemoryCacheStore(clock)
        self.cache_statistics = MemoryCacheStatistics()
        self.config = MemoryConfigStore()
        self.replicas = MemoryReplicas(clock)
        self.connected = MemoryConnectedWorkers(clock)
        self._shard = shard
        self._listeners: list[Callable[[str], None]] = []
        shard.on_news = self._publish

    async def publish(self, shard: int, message: str) -> None:
        self._publish(message)

    async def listen(self, shard: int, on_message: Callable[[str], None], on_gap: Callable[[], None]) -> None:
        self._listeners.append(on_message)

    def next_ms(self) -> int | None:
        """Return when (epoch ms) the store next has something to do by itself: 0 for now or soon, None for never."""
        return self._shard.next_ms()

    def _publish(self, message: str) -> None:
        for on_message in self._listeners:
            on_message(message)
