"""The runs of a cycle stay and go together, because later runs refer to results of earlier ones."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.node_task_manager.cleaning import acknowledge, clean, settle
from tests.stores.node_task_manager.shards import LIMITS, Bench, held, plan_of, redis_shard
from tests.stores.node_task_manager.test_reruns import first_run, rerun_of, run_all
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.server.clock import ManualClock

BASE = "trading_flow:{s0}:"
SECOND = 1000


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    return Bench(redis_shard(redis_server, clock), clock)


async def drain(bench: Bench) -> None:
    while (await bench.shard.claim()).todo:
        pass


async def ttls(server: RedisServer, *numbers: int) -> list[int]:
    return [await server.connect().pttl(f"{BASE}run:flow:0:{number}") for number in numbers]


async def test_earlier_runs_have_no_ttl_while_a_later_run_is_open(bench: Bench, redis_server: RedisServer) -> None:
    plan = plan_of("a>b b>c")
    await bench.shard.save(plan)
    one = first_run(bench, plan)
    two = rerun_of(one, 0)
    for each in (one, two):
        await run_all(bench, each)
        await settle(bench)
    assert (await bench.shard.submit([rerun_of(two, 0, 1)])).results[0].outcome == "accepted"
    await settle(bench)
    assert await ttls(redis_server, 0, 1, 2) == [-1, -1, -1]


async def test_run_cleaned_after_the_latest_one_gets_the_same_time_to_live(
    bench: Bench, redis_server: RedisServer
) -> None:
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    one = first_run(bench, plan)
    await run_all(bench, one)
    bench.clock.advance(20 * SECOND)
    await run_all(bench, rerun_of(one, 0))
    bench.clock.advance(40 * SECOND)
    # The run is not acknowledged yet, and is looked at again a minute later.
    await clean(bench)
    await acknowledge(bench)
    for seconds in (20, 40):
        bench.clock.advance(seconds * SECOND)
        await clean(bench)
    before, latest = await ttls(redis_server, 0, 1)
    assert 0 < before <= latest + SECOND


async def test_lost_result_is_passed_on_as_null_and_blocks_no_other_run(
    bench: Bench, redis_server: RedisServer
) -> None:
    pause = PlanNode("pause", "delay", wait=Wait(after_ms=90 * SECOND, late=("output", "null"), passes=True))
    nodes = (PlanNode("a", "noop"), PlanNode("b", "noop"), pause)
    plan = Plan("p", nodes, (PlanEdge(0, "out", 2, "in"),), FailurePolicy.SKIP_DOWNSTREAM)
    await bench.shard.save(plan)
    one = first_run(bench, plan)
    await run_all(bench, one)
    bench.clock.advance(90 * SECOND + 1)
    await drain(bench)
    await run_all(bench, rerun_of(one, 0))
    await redis_server.connect().delete(f"{BASE}run:flow:0:0")
    bench.clock.advance(90 * SECOND + 1)
    await drain(bench)
    assert await bench.shard.outputs([("flow:0:1:pause", "output")]) == ["null"]
    assert await bench.submit(plan_of("x"), cycle=7) == "accepted"


async def test_open_run_is_not_removed_with_the_latest_of_its_cycle(bench: Bench, redis_server: RedisServer) -> None:
    """The scheduler believed that the run had ended, because its store has lost a second."""
    plan = plan_of("a>b", start_to_close_ms=0)
    await bench.shard.save(plan)
    one = first_run(bench, plan, keep_cycles=1)
    await bench.shard.submit([one])
    (given,) = await bench.take()
    await bench.complete(given, out="1")
    (left,) = await bench.take()
    await bench.shard.submit([rerun_of(one, 0)])
    (other,) = await bench.take(100, "w2")
    await bench.complete(other, out="1")
    await bench.shard.submit([structs.replace(one, run=RunName("flow", 1, 0), run_id="other")])
    for _ in range(2):
        for each in await bench.take(100, "w3"):
            await bench.complete(each, out="1")
    await acknowledge(bench)
    for _ in range(4):
        bench.clock.advance(LIMITS.settle_ms // 4)
        await bench.shard.renew("w1", 0, held(left))
    await clean(bench)
    assert await bench.complete(left, out="1") == ""
    await settle(bench)
    assert await redis_server.connect().hget(f"{BASE}plan:{plan.digest}", "open") == b"0"


async def test_first_purge_step_hides_all_runs_of_a_cycle_from_workers(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock, replace(LIMITS, records_per_script=5)), clock)
    plan = plan_of("a b c d e f g h")
    await bench.shard.save(plan)
    one = first_run(bench, plan)
    await bench.shard.submit([one])
    await drain(bench)
    await bench.shard.submit([rerun_of(one)])
    await drain(bench)
    purge = await bench.shard.purge("flow")
    assert await bench.take(100) == []
    while not purge.done:
        purge = await bench.shard.purge("flow")
    assert await redis_server.connect().hget(f"{BASE}plan:{plan.digest}", "open") == b"0"


async def test_cleaning_does_not_mistake_an_open_run_for_a_purged_namesake(
    bench: Bench, redis_server: RedisServer
) -> None:
    """A deleted flow exists again, and its first cycle has the same name as the earlier one, which had a rerun."""
    admin = redis_server.connect()
    plan = plan_of("a>b", start_to_close_ms=0)
    await bench.shard.save(plan)
    one = first_run(bench, plan)
    await run_all(bench, one)
    await run_all(bench, rerun_of(one, 0))
    while not (await bench.shard.purge("flow")).done:
        pass
    assert not await admin.exists(BASE + "to_clean")
    bench.clock.advance(1)
    assert await bench.submit(plan, run_id="new") == "accepted"
    await admin.execute_command("ZADD", BASE + "to_clean", 1, "run:flow:0:1")
    await clean(bench)
    assert await admin.pttl(BASE + "run:flow:0:0") == -1


async def test_cycle_with_many_runs_is_removed_in_bounded_steps(redis_server: RedisServer) -> None:
    """Each run that is removed leads to the one before, so no step looks at all of them."""
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock, replace(LIMITS, clean_keys=20)), clock)
    admin = redis_server.connect()
    plan = plan_of("a")
    await bench.shard.save(plan)
    runs = [first_run(bench, plan, keep_cycles=1)]
    await run_all(bench, runs[0])
    for _ in range(40):
        runs.append(rerun_of(runs[-1]))
        await run_all(bench, runs[-1])
    await settle(bench)
    await run_all(bench, structs.replace(runs[0], run=RunName("flow", 1, 0), run_id="newer"))
    await acknowledge(bench)
    clock.advance(LIMITS.settle_ms)
    more, walks, removed = True, [], 0
    while more:
        step = await bench.shard.clean("c", None)
        more, removed = step.more, removed + step.runs
        walks.append(int(await admin.execute_command("LLEN", f"{BASE}walks")))
    assert (removed, max(walks), len(walks) > 10) == (41, 1, True)
    assert not any([await bench.shard.component_ids(each.run) for each in runs])
