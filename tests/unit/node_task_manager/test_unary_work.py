"""Claims of workers without streams, while a store, a cache or the worker itself goes away before the answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.unit.node_task_manager.caching_bench import CachingBench
from tests.unit.node_task_manager.conftest import running
from tests.unit.node_task_manager.faulty_store import always
from tests.waiting import until
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.connected_worker import Offer
from tradewind.node_task_manager.use_cases.unary_work import UnaryWork

PENDING, FAILED = NodeTaskStatus.PENDING, NodeTaskStatus.FAILED
FAN = Plan(
    "fan",
    (PlanNode("a", "noop"), PlanNode("b", "noop"), PlanNode("c", "noop")),
    (
        PlanEdge(0, "small", 1, "in"),
        PlanEdge(0, "large", 2, "in"),
    ),
)


class UnaryBench(CachingBench):
    """Two shards, and a worker that claims."""

    def __init__(self) -> None:
        super().__init__()
        self.unary = UnaryWork(self.dispatchers, self.plans, self.caches, lambda *_: None, lambda *_: None)

    async def claim(self, worker_id: str = "u1") -> list[str]:
        """Claim everything there is, and return the nodes that were claimed."""
        return [each.node.node_id for each in await self.claimed(worker_id)]

    async def claimed(self, worker_id: str = "u1") -> list[Ready]:
        return await self.unary.claim(worker_id, {"noop": Offer()}, 10, 2_000_000)

    async def fan(self) -> None:
        """Make two nodes ready, the second with a value that is read outside the claim."""
        await self.store.save(FAN)
        await self.accepted(FAN)
        (a,) = await self.claimed()
        outputs = (("large", '"' + "x" * 5000 + '"'), ("small", "1"))
        done = Outcome(a.assignment.task_id, a.assignment.attempt, a.nonce, OutcomeKind.COMPLETED, outputs)
        assert await self.unary.end("u1", [(0, done)]) == []

    async def statuses(self, *names: str) -> list[NodeTaskStatus]:
        found = await self.store.tasks([f"flow:0:0:{name}" for name in names])
        return [task.status for task in found if task is not None]


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[UnaryBench]:
    async with running(UnaryBench()) as bench:
        yield bench


async def test_claim_of_cancelled_caller_is_given_back(bench: UnaryBench) -> None:
    await bench.accepted(await bench.save("a"))
    answered = bench.store.unanswered["claim"] = asyncio.Event()
    claims = bench.store.count("claim")
    claiming = asyncio.create_task(bench.claim())
    await until(lambda: bench.store.count("claim") > claims, "the store has the claim")
    claiming.cancel()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert await bench.statuses("a") == [PENDING]
    del bench.store.unanswered["claim"]
    assert await bench.claim("u2") == ["a"]


async def test_failed_claim_leaves_nothing_with_the_worker(bench: UnaryBench) -> None:
    await bench.fan()
    bench.store.refused["outputs"] = always
    with pytest.raises(ConnectionError):
        await bench.claim()
    assert await bench.statuses("b", "c") == [PENDING, PENDING]
    del bench.store.refused["outputs"]
    assert sorted(await bench.claim("u2")) == ["b", "c"]


async def test_failing_shard_returns_claims_of_other_shards(bench: UnaryBench) -> None:
    await bench.accepted(await bench.save("a"))
    bench.stores[1].refused["claim"] = always
    with pytest.raises(ConnectionError):
        await bench.claim()
    assert await bench.statuses("a") == [PENDING]


async def test_node_task_with_wrong_plan_fails_alone(bench: UnaryBench) -> None:
    await bench.store.save(FAN)
    bench.plans.put(Plan("fan", FAN.nodes[:2], FAN.edges[:1]))
    await bench.fan()
    assert await bench.claim() == ["b"]
    assert await bench.statuses("c") == [FAILED]


async def test_give_back_releases_the_cache_flight(bench: UnaryBench) -> None:
    await bench.run("a")
    (a,) = await bench.claimed()
    await bench.unary.give_back("u1", [(0, a.assignment.held)])

    async def taken() -> bool:
        return await bench.claim("u2") == ["a"]

    await until(taken, "another worker has it")
