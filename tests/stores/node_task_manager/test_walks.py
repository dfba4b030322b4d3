"""Ended runs that are being removed, a few node tasks in each step."""

from dataclasses import replace

import pytest_asyncio

from tests.servers import RedisServer
from tests.stores.node_task_manager.cleaning import acknowledge, clean, run_cycle, settle
from tests.stores.node_task_manager.doctors import findings
from tests.stores.node_task_manager.shards import LIMITS, Bench, RedisShard, plan_of, redis_shard
from tradewind.node_task_manager.domain.names import RunName
from tradewind.server.clock import ManualClock

BASE = "trading_flow:{s0}:"
PLAN = plan_of(" ".join(f"n{at}" for at in range(100)))


@pytest_asyncio.fixture
async def bench(redis_server: RedisServer) -> Bench:
    """A shard in which six cycles are being removed."""
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock, replace(LIMITS, clean_keys=60)), clock)
    for cycle in range(6):
        await run_cycle(bench, cycle, PLAN, keep=9)
    await settle(bench)
    await run_cycle(bench, 6, PLAN, keep=1)
    await acknowledge(bench)
    clock.advance(LIMITS.settle_ms)
    await bench.shard.clean("c", None)
    assert await redis_server.connect().execute_command("LLEN", BASE + "walks") == 6
    return bench


async def test_doctor_accepts_runs_that_are_being_removed(bench: Bench) -> None:
    assert isinstance(bench.shard, RedisShard)
    assert await findings(bench.shard) == []


async def test_runs_are_removed_although_only_a_count_is_left_of_their_plan(
    bench: Bench, redis_server: RedisServer
) -> None:
    store, plan = redis_server.connect(), f"{BASE}plan:{PLAN.digest}"
    await store.execute_command("DEL", plan)
    await store.execute_command("HSET", plan, "open", -1)
    await clean(bench)
    assert await store.execute_command("LLEN", BASE + "walks") == 0
    await store.execute_command("DEL", plan)


async def test_purge_removes_runs_that_are_already_being_removed(bench: Bench, redis_server: RedisServer) -> None:
    while not (await bench.shard.purge("flow")).done:
        pass
    assert [key for key in await redis_server.keys() if ":flow" in key] == [f"{BASE}purged:flow"]
    bench.clock.advance(1000)
    assert await bench.submit(PLAN, cycle=3, run_id="new") == "accepted"
    await clean(bench)
    assert await bench.shard.component_ids(RunName("flow", 3, 0)) == ("0",)
