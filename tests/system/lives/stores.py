"""The stores in memory that all replicas of a service share, and how each replica sees them."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tests.system.lives.process import Disturbances, DisturbedStore, Process
from tests.system.rollback import snapshot
from tradewind.access.stores.memory import MemoryAccess
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.stores.memory.all_stores import MemoryStores as NodeTaskStores
from tradewind.node_task_manager.stores.memory.shard import MemoryShard
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.registry.app import lifetimes_of
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.memory import MemoryRegistry
from tradewind.scheduler.stores.memory import MemoryStores as SchedulerStores
from tradewind.scheduler.stores.memory.data import Data
from tradewind.server.store_link import NoLink
from tradewind.trigger.ports.stores import Stores as TriggerStores
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.stores.memory_queues import MemoryQueueStore

LEASE_S = 10


class AllStores:
    """Everything on record."""

    def __init__(self, clock: Callable[[], int], limits: Limits, disturbances: Disturbances, *, shards: int) -> None:
        self._clock = clock
        self._disturbances = disturbances
        self._registry = MemoryRegistry(clock, lifetimes_of(RegistrySettings()))
        self._access = MemoryAccess(clock)
        self._node_tasks = [NodeTaskStores(limits, clock) for _ in range(shards)]
        """One for each shard; what shards have in common is in the first."""
        self.triggers = MemoryTriggerStore(
            clock, TriggerSettings(trigger_firings_kept=100_000, trigger_max_failures=4).policy()
        )
        self.data = Data(clock)
        """The records of the schedulers."""

    def snapshot(self, service: str = "", lost: Sequence[MemoryShard] | None = None) -> Callable[[], None]:
        """Return a function that restarts the store as it is now: it has lost what was written since.

        With `service`, that service has a store of its own, and no other store is restarted; `lost` are the shards that
        are restarted, by default all.
        """
        of_node_tasks = self._node_tasks[0]
        records: dict[str, tuple[object, ...]] = {
            "node_task_manager": (
                *(
                    *(self.shards if lost is None else lost),
                    of_node_tasks.caches,
                    of_node_tasks.cache_statistics,
                    of_node_tasks.config,
                ),
                *(of_node_tasks.replicas, of_node_tasks.connected),
            ),
            "trigger": (self.triggers,),
            "scheduler": (self.data,),
            "registry": (self._registry,),
        }
        restore = snapshot([store for name in ([service] if service else records) for store in records[name]])

        def restart() -> None:
            restore()
            self._disturbances.tell_gaps(service)

        return restart

    @property
    def shards(self) -> list[MemoryShard]:
        """The records of the node task managers."""
        return [stores._shard for stores in self._node_tasks]

    def for_scheduler(self, process: Process, replica: str, publishes_ends: Callable[[], bool]) -> Any:
        """Return the stores as a scheduler sees them."""
        stores = SchedulerStores(
            self._clock, replica=replica, lease_ms=LEASE_S * 1000, data=self.data, publishes_ends=publishes_ends
        )
        return SimpleNamespace(**{name: self._seen_by(process, store) for name, store in vars(stores).items()})

    def for_registry(self, process: Process) -> Any:
        """Return the stores as a registry sees them."""
        registry = self._registry
        return SimpleNamespace(
            workers=self._seen_by(process, registry.workers),
            node_types=self._seen_by(process, registry.node_types),
            sweep=self._seen_by(process, registry).sweep,
        )

    def for_access(self, process: Process) -> Any:
        """Return the stores as an access service sees them."""
        access = self._access
        seen = {name: getattr(access, name) for name in ("sessions", "users", "calls", "quotas", "changes")}
        return SimpleNamespace(**{name: self._seen_by(process, store) for name, store in seen.items()})

    def for_trigger_service(self, process: Process) -> TriggerStores:
        """Return the stores as a trigger service sees them."""
        triggers = self.triggers
        return TriggerStores(
            of_queue=lambda queue: self._seen_by(process, triggers.of_queue(queue)),
            queues=self._seen_by(process, MemoryQueueStore(triggers)),
            wakes=self._seen_by(process, triggers),
        )

    def for_node_task_manager(self, process: Process) -> Any:
        """Return the stores as a node task manager sees them."""
        return _OfNodeTaskManager(
            self._node_tasks, process, self._disturbances, lambda store: self._seen_by(process, store)
        )

    def _seen_by(self, process: Process, store: Any) -> Any:
        return DisturbedStore(store, process, self._disturbances)


class _OfNodeTaskManager(NoLink):
    def __init__(
        self,
        of_shards: Sequence[NodeTaskStores],
        process: Process,
        disturbances: Disturbances,
        seen: Callable[[Any], Any],
    ) -> None:
        stores = of_shards[0]
        self._of_shards = of_shards
        self._process = process
        self._disturbances = disturbances
        shards = {at: seen(each.shards[0].tasks) for at, each in enumerate(of_shards)}
        self.shards = {at: Shard(at, each, each, each, each, each, each) for at, each in shards.items()}
        self.doctors = stores.doctors
        self.cache_doctors = stores.cache_doctors
        self.caches = seen(stores.caches)
        self.cache_statistics = seen(stores.cache_statistics)
        self.config = seen(stores.config)
        self.replicas = seen(stores.replicas)
        self.connected = seen(stores.connected)

    async def publish(self, shard: int, message: str) -> None:
        await self._process.wait_until_runs()
        await self._of_shards[shard].publish(shard, message)

    async def listen(self, shard: int, on_message: Callable[[str], None], on_gap: Callable[[], None]) -> None:
        self._disturbances.gaps.append((self._process, on_gap))

        def receive(message: str) -> None:
            if self._process.runs:
                on_message(message)

        await self._of_shards[shard].listen(shard, receive, on_gap)
