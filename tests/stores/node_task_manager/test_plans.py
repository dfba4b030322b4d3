"""Plans: lists of every length are read back whole, and a plan that was written only in part does not exist."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import LIMITS, Bench, redis_shard
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis_plans import RedisPlanStore
from tradewind.server.clock import ManualClock
from tradewind.server.redis.client import Client


class Interrupted(Exception):
    """The writer has died."""


class DyingPlanStore(RedisPlanStore):
    """A plan store that dies after `writes` writes."""

    def __init__(self, client: Client, writes: int) -> None:
        super().__init__(client, Keys("trading_flow", 0), LIMITS)
        self._left = writes

    async def _write(self, key: str, fields: Mapping[str, bytes], keep_ms: int) -> None:
        if not self._left:
            raise Interrupted
        self._left -= 1
        await super()._write(key, fields, keep_ms)


def wide(width: int) -> Plan:
    """Return a plan of one node, `width` nodes after it, and one node after those."""
    names = ("first", *(f"n{place}" for place in range(width)), "last")
    edges = [PlanEdge(0, "out", place, "in") for place in range(1, width + 1)]
    edges += [PlanEdge(place, "out", width + 1, "in") for place in range(1, width + 1)]
    return Plan(f"wide{width}", tuple(PlanNode(name, "noop") for name in names), tuple(edges))


async def test_partly_written_plan_is_unknown_and_expires(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    plan, client = wide(1200), redis_server.connect("node_task_manager")
    writes = 0
    while True:
        try:
            await DyingPlanStore(client, writes).save(plan)
            break
        except Interrupted:
            assert await bench.shard.load(plan.digest) is None
        assert await _submitted(bench, plan, writes) == "plan_unknown"
        assert await redis_server.keys_without_ttl() == []
        writes += 1
    assert writes > 3
    assert await _submitted(bench, plan, writes) == "accepted"
    assert await bench.shard.load(plan.digest) == plan


@pytest.mark.parametrize("nodes", [1, 500, 501, 1200])
async def test_plan_without_edges_is_loaded_whole_or_in_parts(bench: Bench, nodes: int) -> None:
    plan = Plan("batch", tuple(PlanNode(str(place), "noop", f'{{"n":{place}}}') for place in range(nodes)), ())
    assert len(plan.inputs) == nodes
    await bench.shard.save(plan)
    assert await bench.shard.load(plan.digest) == plan
    for place in {0, 499, 500, nodes - 1} & set(range(nodes)):
        part = await bench.shard.load(plan.digest, place)
        assert part is not None
        assert part.node(place) == plan.nodes[place]
        first = None if nodes <= 500 else place // 500 * 500
        assert (part.first, len(part.nodes)) == (first, min(500, nodes - (first or 0)))
        assert (part.edges_into(place), len(part.inputs)) == ((), len(part.nodes))
    beyond = await bench.shard.load(plan.digest, 7000)
    assert beyond is not None
    with pytest.raises(LookupError):
        beyond.node(7000)


async def test_plan_with_edges_is_always_loaded_whole(bench: Bench) -> None:
    plan = wide(1200)
    await bench.shard.save(plan)
    assert await bench.shard.load(plan.digest, 700) == plan
    assert await bench.shard.load("unknown", 0) is None


class ExpiringPlans:
    """A client whose plans expire as soon as anything of them has been read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def hmget(self, key: str, fields: Sequence[str]) -> list[Any]:
        found = await self._client.hmget(key, list(fields))
        await self._client.delete(key)
        return found


async def test_plan_that_expires_while_it_is_read_is_unknown(redis_server: RedisServer) -> None:
    """Kept in memory without its nodes, it would fail those of the next batch with this digest."""
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    plan = Plan("batch", tuple(PlanNode(str(place), "noop") for place in range(501)), ())
    await bench.shard.save(plan)
    client: Any = ExpiringPlans(redis_server.connect("node_task_manager"))
    assert await RedisPlanStore(client, Keys("trading_flow", 0), LIMITS).load(plan.digest) is None


async def _submitted(bench: Bench, plan: Plan, cycle: int) -> str:
    run = RunSubmission(RunName("flow", cycle, 0), "r0", "default", (("0", plan.digest),), 3, begun_ms=bench.clock())
    return (await bench.shard.submit([run])).results[0].outcome


@pytest.mark.parametrize("width", [498, 499, 500, 501, 999, 1000, 1001])
async def test_every_edge_is_followed_across_piece_boundaries(bench: Bench, width: int) -> None:
    plan = wide(width)
    await bench.submit(plan)
    (first,) = await bench.take()
    assert await bench.complete(first, out="1") == ""
    middle = []
    while taken := await bench.take():
        middle += taken
    assert sorted(each.index for each in middle) == list(range(1, width + 1))
    ended = [Outcome(each.task_id, each.attempt, each.nonce, OutcomeKind.COMPLETED, (("out", "2"),)) for each in middle]
    await bench.shard.complete(ended[:-1])
    assert await bench.take() == []
    await bench.shard.complete(ended[-1:])
    while (await bench.shard.claim()).todo:
        pass
    (last,) = await bench.take()
    assert (len(last.inputs), last.inputs_outside) == ((0, True) if width > 500 else (width, False))
    await bench.complete(last)
    (component,) = await bench.shard.components([(RunName("flow", 0, 0), "0")])
    assert component is not None
    assert (component.completed, component.open) == (width + 2, 0)
