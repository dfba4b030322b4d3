"""A dispatcher over a store that can fail, and workers whose lines only record what they are sent."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from msgspec import structs

from tests.unit.node_task_manager.faulty_store import FaultyStore
from tests.waiting import until
from tradewind.node_task_manager.domain.component import RunSubmission, SubmitOutcome, SubmitResult
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.peers.registry import RegisteredWorkers
from tradewind.node_task_manager.ports.work import Held, Outcome, OutcomeKind, Termination
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.stores.memory.caches import MemoryCacheStatistics, MemoryCacheStore
from tradewind.node_task_manager.use_cases import dispatch
from tradewind.node_task_manager.use_cases.cache_statistics import CacheCounts
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.connect import Connections
from tradewind.node_task_manager.use_cases.connected_worker import ConnectedWorker, Offer
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.clock import ManualClock
from tradewind.server.stalls import StallDetector


@dataclass
class Line:
    """A WorkerLine that records what it is sent."""

    full: bool = False
    assigned: list[Ready] = field(default_factory=list)
    terminated: list[Termination] = field(default_factory=list)
    lost: list[tuple[Held, str]] = field(default_factory=list)
    expected: list[tuple[int, int]] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    resyncs: int = 0
    closed_for: str = ""

    async def writable(self) -> None:
        while self.full:
            await asyncio.sleep(0)

    def assign(self, ready: Sequence[Ready]) -> None:
        self.assigned += ready

    def terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        self.terminated += terminations

    def report_losses(self, shard: int, losses: Sequence[tuple[Held, str]], sequence: int | None = None) -> None:
        self.lost += losses

    def expect(self, sequence: int, parts: int, *, awaited: bool = False) -> None:
        self.expected.append((sequence, parts))

    def acknowledge(self, sequence: int) -> None:
        self.acknowledged.append(sequence)

    def resync(self) -> None:
        self.resyncs += 1

    def ping(self, number: int) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closed_for = reason

    @property
    def nodes(self) -> list[str]:
        """The assigned nodes, in order."""
        return [each.node.node_id for each in self.assigned]


class Bench:
    """Two shards of one process; tests mostly use the first."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stores = [FaultyStore(self.clock), FaultyStore(self.clock)]
        self.store = self.stores[0]
        self.pool = WorkerPool()
        self.plans = PlanCache()
        self.notified_elsewhere: list[str] = []
        self.caches = self.make_caches()
        self.dispatchers = {
            at: Dispatcher(
                Shard(at, store, store, store, store, store, store),
                self.pool,
                self.plans,
                lambda _shard, _events: None,
                lambda _shard, workers: self.notified_elsewhere.extend(workers),
                self.caches,
            )
            for at, store in enumerate(self.stores)
        }
        self.dispatcher = self.dispatchers[0]
        self.stalls = StallDetector()
        self.connections = Connections(self.dispatchers, self.pool, RegisteredWorkers(None), self.stalls, grace_s=0.01)

    def make_caches(self) -> ResultCaches:
        """Return caches that no node uses."""
        store = MemoryCacheStore(self.clock)
        counts = CacheCounts(store, MemoryCacheStatistics(), SystemConfig)
        return ResultCaches(store, counts, SystemConfig, self.pool, AsyncMock(), AsyncMock(), 30_000)

    async def connect(
        self,
        worker_id: str = "w1",
        *,
        capacity: int = 10,
        node_types: tuple[str, ...] = ("noop",),
        offers: Mapping[str, Offer] | None = None,
    ) -> tuple[ConnectedWorker, Line]:
        """Open a stream of a worker."""
        line = Line()
        worker = ConnectedWorker(worker_id, "i1", node_types, capacity, line, offers=offers or {})
        await self.connections.open(worker, [], lambda _session: None)
        return worker, line

    async def save(self, *names: str, node_type: str = "noop", known: bool = True) -> Plan:
        """Save a plan of single nodes."""
        plan = Plan("/".join([*names, node_type]), tuple(PlanNode(name, node_type) for name in names), ())
        await self.store.save(plan)
        if known:
            self.plans.put(plan)
        return plan

    def submit(
        self, plan: Plan, *, flow_id: str = "flow", shard: int = 0, inputs: str = ""
    ) -> asyncio.Future[list[SubmitResult]]:
        """Submit a run of a plan."""
        run = RunSubmission(RunName(flow_id, 0, 0), "r0", "default", (("0", plan.digest),), 3, inputs)
        return self.dispatchers[shard].submit([run])

    async def settled(self) -> None:
        """Wait until no room is promised to a claim that is under way."""
        await until(lambda: not any(worker.promised for worker in self.pool), "no room is promised")

    async def accepted(self, plan: Plan, **options: object) -> None:
        """Submit a run and wait until it is accepted and its ready nodes have gone to workers with room."""
        (result,) = await self.submit(plan, **options)  # type: ignore[arg-type]
        assert result.outcome is SubmitOutcome.ACCEPTED
        await asyncio.sleep(0)


def outcome(ready: Ready) -> tuple[int, Outcome]:
    """Return a successful outcome of an assignment, with its shard."""
    given = ready.assignment
    return ready.shard, Outcome(given.task_id, given.attempt, given.nonce, OutcomeKind.COMPLETED, (("out", "1"),))


def held(ready: Ready) -> tuple[int, Held]:
    """Return the lease of an assignment, with its shard."""
    given = ready.assignment
    return ready.shard, Held(given.task_id, given.attempt, given.nonce)


def forged(ready: Ready) -> tuple[int, Outcome]:
    """Return an outcome for a lease that nobody holds."""
    shard, real = outcome(ready)
    return shard, structs.replace(real, nonce="forged")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_RETRY_S", (0.001, 0.001))
    monkeypatch.setattr(dispatch, "_REMIND_S", 0.01)


AnyBench = TypeVar("AnyBench", bound=Bench)


@asynccontextmanager
async def running(bench: AnyBench) -> AsyncIterator[AnyBench]:
    """Run the dispatchers of a bench."""
    for dispatcher in bench.dispatchers.values():
        dispatcher.start()
    yield bench
    await bench.connections.stop()
    for dispatcher in bench.dispatchers.values():
        await dispatcher.stop()
    await bench.caches.stop()


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(Bench()) as bench:
        yield bench
