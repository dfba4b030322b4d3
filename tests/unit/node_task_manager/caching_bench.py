"""Two shards of a node task manager whose node tasks may find their results in a cache."""

from typing import Any

from msgspec import structs

from tests.unit.node_task_manager.conftest import Bench, Line, outcome
from tests.waiting import until
from tradewind.node_task_manager.domain.caching import CacheUse, Entry
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.caches import CacheLookup
from tradewind.node_task_manager.stores.memory.caches import MemoryCacheStatistics, MemoryCacheStore
from tradewind.node_task_manager.use_cases.cache_statistics import CacheCounts
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker

SCREENING = CacheUse("screening")
FLIGHT_MS = 30_000


class Store(MemoryCacheStore):
    """Caches that count calls, and can be away."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.clock)
        self.calls: list[str] = []
        self.away = False
        self.full = False

    async def look_up(self, entry: Entry, token: str, flight_ms: int) -> CacheLookup:
        self.calls.append("look_up")
        if self.away:
            raise ConnectionError("the cache is away")
        return await super().look_up(entry, token, flight_ms)

    async def fill(self, *args: Any) -> tuple[bool, int]:
        self.calls.append("fill")
        if self.full:
            raise ConnectionError("no memory is left")
        return await super().fill(*args)


class CachingBench(Bench):
    """Two shards of one process with caches."""

    def __init__(self) -> None:
        self.config = SystemConfig()
        self.notified: list[tuple[Entry, bool]] = []
        self.cycles = 0
        super().__init__()

    def make_caches(self) -> ResultCaches:
        self.caches_store = Store(self)
        self.cache_counts = CacheCounts(self.caches_store, MemoryCacheStatistics(), lambda: self.config)
        return ResultCaches(
            self.caches_store,
            self.cache_counts,
            lambda: self.config,
            self.pool,
            self._hasten,
            self._notify,
            FLIGHT_MS,
            10.0,
            lambda: self.clock() / 1000,
        )

    async def _hasten(self, shard: int, task_ids: Any) -> Any:
        dispatcher = self.dispatchers[shard]
        effects = await dispatcher.shard.tasks.hasten(task_ids)
        dispatcher.apply(effects)
        dispatcher.request_claim()
        return effects.results

    async def _notify(self, entry: Entry, filled: bool) -> None:
        self.notified.append((entry, filled))

    async def run(self, *names: str, config: str = "{}", use: CacheUse | None = SCREENING, **node: Any) -> None:
        """Submit a run of single nodes that do the same work."""
        self.cycles += 1
        nodes = tuple(PlanNode(name, "noop", config, cache=use, **node) for name in names)
        plan = Plan(f"plan{self.cycles}", nodes, ())
        await self.store.save(plan)
        self.plans.put(plan)
        await self.accepted(plan, flow_id=f"f{self.cycles}")

    async def tasks(self, *names: str, of: int = 0) -> list[NodeTask]:
        """Return node tasks of the latest run, or of the run `of`."""
        found = await self.store.tasks([f"f{of or self.cycles}:0:0:{name}" for name in names], outputs=True)
        return [task for task in found if task is not None]

    async def all_are(self, status: NodeTaskStatus, *names: str, of: int = 0) -> None:
        """Wait until the named node tasks have a status."""

        async def are() -> bool:
            return [task.status for task in await self.tasks(*names, of=of)] == [status] * len(names)

        await until(are, f"{', '.join(names)} are {status}")

    async def given(self, line: Line, count: int) -> None:
        """Wait until `count` node tasks have been assigned in all."""
        await until(lambda: len(line.assigned) == count, f"{count} node tasks are given")

    async def end(self, worker: ConnectedWorker, line: Line, at: int = -1, **changed: Any) -> None:
        """Report the end of an attempt."""
        shard, done = outcome(line.assigned[at])
        await self.connections.handle_message(worker, 1, [(shard, structs.replace(done, **changed))])

    async def counts(self) -> dict[str, int]:
        """Return the counts of the cache called screening."""
        (usage,) = await self.cache_counts.usage("screening")
        return {name: count for name, count in usage.counts.items() if count}
