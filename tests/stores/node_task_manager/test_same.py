"""Memory is the specification: the same random operations on memory and Redis must have the same effects.

`python -m tests.stores.node_task_manager.test_same FIRST COUNT [embedded|cluster|system]` tries more seeds.
"""

import asyncio
import random
import sys
from dataclasses import replace

import pytest

from tests.servers import RedisServer, RedisServers, redis_kinds
from tests.stores.machines import HISTORIES
from tests.stores.node_task_manager.both import RETRIES
from tests.stores.node_task_manager.doctors import findings
from tests.stores.node_task_manager.invariants import check_invariants, check_nothing_left, expire_all
from tests.stores.node_task_manager.random_plans import TASK_PLANS, random_plan
from tests.stores.node_task_manager.shards import memory_shard, redis_shard
from tests.stores.node_task_manager.world import CLEAN_KEYS, SETTLE_MS, World
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.server.clock import ManualClock

STEPS = 40
OUTPUT_BYTES = 12_000
"""Small enough that the results of a few items are too large together."""
WHOLE = Limits(
    retries=RETRIES,
    task_events=5,
    settle_ms=SETTLE_MS,
    confirm_ms=2 * SETTLE_MS,
    clean_keys=CLEAN_KEYS,
    output_bytes=OUTPUT_BYTES,
)
CUT = replace(WHOLE, records_per_script=3)
SEEDS = {"embedded": 20 * HISTORIES, "cluster": 5 * HISTORIES, "system": 5 * HISTORIES}
CHUNKS = [(kind, first) for kind in redis_kinds() for first in range(0, SEEDS[kind], 5)]


async def compare_random_calls(server: RedisServer, seed: int, limits: Limits) -> None:
    """Do random things to both stores, comparing after each, for some seeds raw keys too; then let everything end."""
    await server.flush()
    rng, clock = random.Random(seed), ManualClock()
    redis = redis_shard(server, clock, limits)
    drawn = (random_plan(rng, at, lasting=limits is CUT) for at in range(4))
    plans = {plan.digest: plan for plan in drawn} | TASK_PLANS
    world = World(rng, clock, memory_shard(clock, limits), redis, plans, cut=limits is CUT)
    try:
        for plan in plans.values():
            await world.memory.save(plan)
            await world.redis.save(plan)
        for step in range(STEPS):
            await world.act()
            await world.compare()
            if step == STEPS // 2 and seed % 3 == 0:
                await world.end_all()
                for _ in range(3):
                    await world.rerun()
                    await world.compare()
            if step % 10 == 9:
                await world.compare_rarely_changed()
            if seed % 5 == 0:
                await check_invariants(server)
                assert await findings(redis) == []
        await world.wind_down()
        await world.compare_notices()
        await check_invariants(server)
        assert await findings(redis) == []
        # What a rerun kept goes when the rerun does; a flow of which something was kept is looked at once more.
        for _ in range(3):
            await expire_all(server)
            await world.sweep()
            clock.advance(24 * 3600 * 1000)
        await check_nothing_left(server)
    finally:
        await server.close_clients()


@pytest.fixture
def server(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer:
    return redis_servers.get(request.param)


@pytest.mark.parametrize(("server", "first"), CHUNKS, indirect=["server"])
async def test_redis_behaves_like_memory(server: RedisServer, first: int) -> None:
    for seed in range(first, first + 5):
        await compare_random_calls(server, seed, WHOLE)


@pytest.mark.parametrize(("server", "first"), CHUNKS, indirect=["server"])
async def test_redis_behaves_like_memory_with_work_cut_into_pieces(server: RedisServer, first: int) -> None:
    """With at most three records per script, everything goes through `todo`."""
    for seed in range(1000 + first, 1005 + first):
        await compare_random_calls(server, seed, CUT)


async def _try_seeds(server: RedisServer, first: int, count: int) -> None:
    for seed in range(first, first + count):
        for limits in (WHOLE, CUT):
            try:
                await compare_random_calls(server, seed, limits)
            except BaseException:
                print("seed", seed, "whole" if limits is WHOLE else "cut")
                raise


if __name__ == "__main__":
    _servers = RedisServers()
    try:
        asyncio.run(
            _try_seeds(_servers.get(sys.argv[3] if len(sys.argv) > 3 else "embedded"), *map(int, sys.argv[1:3]))
        )
    finally:
        _servers.stop()
