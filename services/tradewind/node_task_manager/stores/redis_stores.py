"""All of the node task manager's stores in Redis."""

from collections.abc import Callable

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis import RedisNodeTaskStore
from tradewind.node_task_manager.stores.redis_cache_doctor import RedisCacheDoctor
from tradewind.node_task_manager.stores.redis_caches import RedisCacheStatistics, RedisCacheStore
from tradewind.node_task_manager.stores.redis_config import RedisConfigStore
from tradewind.node_task_manager.stores.redis_connected import RedisConnectedWorkers
from tradewind.node_task_manager.stores.redis_doctor import RedisShardDoctor
from tradewind.node_task_manager.stores.redis_events import RedisEventLog
from tradewind.node_task_manager.stores.redis_notices import RedisNotices
from tradewind.node_task_manager.stores.redis_plans import RedisPlanStore
from tradewind.node_task_manager.stores.redis_queues import RedisQueueReader
from tradewind.node_task_manager.stores.redis_reader import RedisNodeTaskReader
from tradewind.node_task_manager.stores.redis_replicas import RedisReplicas
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.clock import ScriptTime
from tradewind.server.redis.client import Client, connect
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink
from tradewind.server.settings import text_of, variable_of


class RedisStores(RedisLink):
    """Implements Stores, as the settings say."""

    def __init__(self, settings: NodeTaskManagerSettings, limits: Limits) -> None:
        shards = settings.node_task_manager_shards
        self._keys = {at: Keys(settings.key_prefix, at) for at in range(shards)}
        hint = f" by {variable_of('node_task_manager_shards')}"
        super().__init__(
            settings,
            DataVersion(self._keys[0].data_version(), {"shards": shards}, {"shards": hint}, version=2, oldest=2),
        )
        client, time = self.client, ScriptTime()
        self._cache_client = _cache_client(settings) or client
        tasks = {at: RedisNodeTaskStore(client, keys, limits, time) for at, keys in self._keys.items()}
        self.shards = {at: _shard(at, client, keys, limits, tasks[at]) for at, keys in self._keys.items()}
        self.doctors = {at: RedisShardDoctor(each) for at, each in tasks.items()}
        # A store for caches alone may drop results at any time, so nothing there can be called broken.
        own = self._cache_client is not client
        self.cache_doctors = (
            {} if own else {at: RedisCacheDoctor(client, keys, time) for at, keys in self._keys.items()}
        )
        self.caches = RedisCacheStore(self._cache_client, self._keys, time)
        self.cache_statistics = RedisCacheStatistics(client, self._keys[0])
        self.config = RedisConfigStore(client, self._keys)
        self.replicas = RedisReplicas(client, self._keys[0], time)
        self.connected = RedisConnectedWorkers(client, self._keys[0], time)

    async def publish(self, shard: int, message: str) -> None:
        await self.client.publish(self._keys[shard].wake, message)

    async def listen(self, shard: int, on_message: Callable[[str], None], on_gap: Callable[[], None]) -> None:
        def deliver(_channel: str, message: bytes) -> None:
            on_message(message.decode())

        await self.subscriber.subscribe(self._keys[shard].wake, deliver, on_gap)

    async def close(self) -> None:
        try:
            if self._cache_client is not self.client:
                await self._cache_client.end()
        finally:
            await super().close()


def _cache_client(settings: NodeTaskManagerSettings) -> Client | None:
    if settings.cache_url is None:
        return None
    password, tls = text_of(settings.cache_password), settings.store_tls_files()
    return connect(settings.cache_url, user=settings.cache_user, password=password, tls=tls)


def _shard(number: int, client: Client, keys: Keys, limits: Limits, tasks: RedisNodeTaskStore) -> Shard:
    return Shard(
        number,
        tasks,
        RedisNodeTaskReader(client, keys),
        RedisPlanStore(client, keys, limits),
        RedisEventLog(client, keys),
        RedisQueueReader(client, keys),
        RedisNotices(client, keys, limits, ScriptTime(), tasks),
    )
