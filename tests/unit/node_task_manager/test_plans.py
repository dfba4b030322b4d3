"""Plans kept in memory take a bounded amount of it, and each is loaded once."""

import asyncio

import pytest

from tests.stores.node_task_manager.shards import LIMITS
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.memory.connected import MemoryConnectedWorkers
from tradewind.node_task_manager.stores.memory.shard import MemoryShard
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.waits import ExplainPending
from tradewind.server.clock import ManualClock
from tradewind.server.faults import NotFound


def plan(digest: str, config_bytes: int) -> Plan:
    """Build a plan of one node."""
    return Plan(digest, (PlanNode("a", "noop", "x" * config_bytes),), ())


def test_large_configs_evict_least_recently_used_plans() -> None:
    cache = PlanCache(size=10_000)
    for digest in ("p1", "p2", "p3"):
        cache.put(plan(digest, 2_000))
    assert cache.get("p1") is not None
    cache.put(plan("p4", 2_000))
    assert [digest for digest in ("p1", "p2", "p3", "p4") if cache.get(digest)] == ["p1", "p3", "p4"]


def test_plan_larger_than_the_cache_is_kept_alone() -> None:
    cache = PlanCache(size=1_000)
    cache.put(plan("p1", 10))
    cache.put(plan("p2", 5_000))
    cache.put(plan("p2", 5_000))
    assert (cache.get("p1"), cache.get("p2") is not None) == (None, True)


class Store:
    """Counts how often each plan is loaded, and how many at once; plans that are `away` fail the first time."""

    def __init__(self, *away: str) -> None:
        self.loaded: list[str] = []
        self.under_way = self.max_under_way = 0
        self._away = set(away)

    async def save(self, plan: Plan, keep_ms: int | None = None) -> None:
        raise AssertionError("plans are only loaded here")

    async def load(self, digest: str, place: int | None = None) -> Plan | None:
        self.loaded.append(digest)
        self.under_way += 1
        self.max_under_way = max(self.max_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if digest in self._away:
            self._away.remove(digest)
            raise ConnectionError("away")
        return plan(digest, 10)


async def test_concurrent_fetches_load_a_plan_once() -> None:
    cache, store = PlanCache(), Store()
    found = await asyncio.gather(*(cache.fetch(store, ["p1", "p2"]) for _ in range(20)))
    assert all(each.keys() == {"p1", "p2"} for each in found)
    assert sorted(store.loaded) == ["p1", "p2"]


async def test_plan_that_is_wanted_at_many_places_is_loaded_once() -> None:
    """A plan with edges is loaded whole, whichever node of it is wanted."""
    cache, store = PlanCache(), Store()
    await asyncio.gather(*(cache.require(store, "p1", place) for place in range(0, 10_000, 500)))
    assert store.loaded == ["p1"]


async def test_failed_load_is_retried_by_the_next_fetch() -> None:
    cache, store = PlanCache(), Store("p1")
    found = await asyncio.gather(*(cache.fetch(store, ["p1"]) for _ in range(3)), return_exceptions=True)
    assert [isinstance(each, ConnectionError) for each in found] == [True, False, False]
    assert store.loaded == ["p1", "p1"]


async def test_many_plans_are_loaded_fifty_at_a_time() -> None:
    store = Store()
    digests = [f"p{at}" for at in range(120)]
    assert (await PlanCache().fetch(store, digests)).keys() == set(digests)
    assert store.max_under_way == 50


class Records(MemoryShard):
    """Counts how many nodes are loaded."""

    def __init__(self) -> None:
        super().__init__(LIMITS, ManualClock())
        self.nodes_loaded = 0

    async def load(self, digest: str, place: int | None = None) -> Plan | None:
        plan = await super().load(digest, place)
        self.nodes_loaded += len(plan.nodes) if plan else 0
        return plan


async def test_items_of_more_batches_than_fit_into_memory_are_read_a_part_at_a_time() -> None:
    """Users take turns, so one item of each of their batches is wanted, then the next of each."""
    records, cache = Records(), PlanCache(size=25 * 1_000_000)
    batches = [Plan(f"p{at}", tuple(PlanNode(str(place), "noop") for place in range(10_000)), ()) for at in range(20)]
    for batch in batches:
        await records.save(batch)
        cache.put(batch)
    for place in range(490, 510):
        for batch in batches:
            assert (await cache.require(records, batch.digest, place)).node(place).node_id == str(place)
    # Two parts of each; those of the newest batches were in memory at first.
    assert records.nodes_loaded <= 20 * 2 * 500


async def test_item_of_a_batch_is_shown_without_the_others() -> None:
    """What a batch waits for is what its last item waits for, and is asked of each open batch."""
    store = Records()
    shard = Shard(0, store, store, store, store, store, store)
    explain = ExplainPending(lambda _: SystemConfig(), MemoryConnectedWorkers(ManualClock()))
    records = NodeTaskRecords({0: shard}, PlanCache(), explain)
    work = AdHocWork("ann", "noop", tuple(f'{{"n":{at}}}' for at in range(1200)), batch=True)
    run = work.run("b")
    await store.save(work.plan(run))
    await store.submit([work.submission(run)])
    view = await records.node_task(str(run) + ":1199", "ann")
    assert (view.node.config_json, view.task.index, await records.signals([view], "ann")) == ('{"n":1199}', 1199, [])
    assert store.nodes_loaded == 200
    for unknown in ("1200", "01", "x"):
        with pytest.raises(NotFound):
            await records.node_task(f"{run}:{unknown}", "ann")
