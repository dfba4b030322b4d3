"""All the stores of the node task manager."""

from collections.abc import Callable, Mapping
from typing import Protocol

from tradewind.node_task_manager.ports.caches import CacheStatistics, CacheStore
from tradewind.node_task_manager.ports.config import ConfigStore
from tradewind.node_task_manager.ports.connected import ConnectedWorkers
from tradewind.node_task_manager.ports.doctor import CacheDoctor, ShardDoctor
from tradewind.node_task_manager.ports.workers import Replicas
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.store_link import StoreLink


class Stores(StoreLink, Protocol):
    """The shards by number, what they share, and the channel of each shard on which replicas exchange news."""

    @property
    def shards(self) -> Mapping[int, Shard]: ...

    @property
    def doctors(self) -> Mapping[int, ShardDoctor]: ...

    @property
    def cache_doctors(self) -> Mapping[int, CacheDoctor]: ...

    @property
    def caches(self) -> CacheStore: ...

    @property
    def cache_statistics(self) -> CacheStatistics: ...

    @property
    def config(self) -> ConfigStore: ...

    @property
    def replicas(self) -> Replicas: ...

    @property
    def connected(self) -> ConnectedWorkers: ...

    async def publish(self, shard: int, message: str) -> None:
        """Send a message to every replica that listens to the shard, this one included."""
        ...

    async def listen(self, shard: int, on_message: Callable[[str], None], on_gap: Callable[[], None]) -> None:
        """Call `on_message` with each message from now on, and `on_gap` whenever messages may have been lost."""
        ...
