"""Runs whose plan the store has lost: they can be stopped and removed, and nothing of them stays in the way."""

from dataclasses import replace

import pytest

from tests.servers import RedisServer
from tests.stores.node_task_manager.doctors import findings
from tests.stores.node_task_manager.invariants import check_invariants
from tests.stores.node_task_manager.shards import RUN, Bench, RedisShard, only_component, plan_of
from tests.stores.node_task_manager.test_batches import batch, component, submit
from tests.stores.node_task_manager.test_fan_out import begun, items, plan
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.component import ComponentStatus
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.events import ComponentEvent
from tradewind.node_task_manager.ports.work import Effects, Outcome, OutcomeKind

PLAN = plan_of("a>b c d")
LARGE = plan_of(" ".join(f"n{at}" for at in range(1200)), digest="large")


async def lose_plans(server: RedisServer) -> None:
    """Remove all plans, and what the store's functions remember of them."""
    for key in await server.keys():
        if ":plan:" in key:
            await server.connect().execute_command("DEL", key)
    for node in server.nodes:
        await server.on_node(node, "FUNCTION", "FLUSH")


async def stop(bench: Bench, run: RunName = RUN, run_id: str = "r0") -> Effects:
    """Stop a run and carry out what that leaves to later scripts."""
    effects = await bench.shard.stop(run, run_id, "", "enough", "ann", 1000)
    later = effects
    while later.todo:
        later = await bench.shard.claim()
    return effects


async def pass_over_queue(bench: Bench, server: RedisServer) -> None:
    """Let a worker look for work until the queue is empty."""
    while await server.connect().execute_command("EXISTS", "trading_flow:{s0}:ready:noop:default"):
        assert await bench.take() == []


async def check_nothing_in_the_way(bench: Bench) -> None:
    """A worker finds nothing of a run in the queues, and after that nothing is wrong."""
    assert await bench.take(100, "w9") == []
    assert isinstance(bench.shard, RedisShard)
    assert await findings(bench.shard) == []


async def test_stopped_run_ends_at_once(redis_bench: Bench, redis_server: RedisServer) -> None:
    await redis_bench.submit(PLAN)
    completed, running = await redis_bench.take(2)
    assert await redis_bench.complete(completed, out="1") == ""
    await lose_plans(redis_server)

    effects = await stop(redis_bench)

    assert effects.results == ("2", "1")
    assert [each.task_id for each in effects.terminations] == [running.task_id]
    ended = await only_component(redis_bench)
    assert (ended.status, ended.completed, ended.terminated, ended.skipped) == (ComponentStatus.FINISHED, 1, 1, 2)
    assert isinstance(redis_bench.shard, RedisShard)
    (event,) = await redis_bench.shard.read({3: "0"}, 10)
    assert isinstance(event, ComponentEvent)
    assert event.stop is not None
    assert (event.stop.reason, event.stop.by) == ("enough", "ann")
    assert await redis_bench.complete(running, out="1") == "the node task is terminated"
    await check_nothing_in_the_way(redis_bench)


async def test_run_whose_plan_is_of_another_type_is_named_and_can_be_stopped(
    redis_bench: Bench, redis_server: RedisServer
) -> None:
    await redis_bench.submit(PLAN)
    await redis_bench.take(1)
    await lose_plans(redis_server)
    key = f"trading_flow:{{s0}}:plan:{PLAN.digest}"
    await redis_server.connect().execute_command("SET", key, "broken")
    assert isinstance(redis_bench.shard, RedisShard)
    assert {each.check for each in await findings(redis_bench.shard)} == {"plan-missing"}
    await stop(redis_bench)
    assert (await only_component(redis_bench)).status is ComponentStatus.FINISHED
    await check_nothing_in_the_way(redis_bench)
    await redis_server.connect().execute_command("DEL", key)


async def test_stopped_large_run_ends_in_several_steps(redis_bench: Bench, redis_server: RedisServer) -> None:
    await redis_bench.submit(LARGE)
    while (await redis_bench.shard.claim()).todo:
        pass
    await lose_plans(redis_server)
    assert (await redis_bench.shard.stop(RUN, "r0", "", "enough", "ann", 1000)).todo
    while (await redis_bench.shard.claim()).todo:
        pass
    ended = await only_component(redis_bench)
    assert (ended.status, ended.skipped) == (ComponentStatus.FINISHED, 1200)
    await pass_over_queue(redis_bench, redis_server)
    await check_nothing_in_the_way(redis_bench)


async def test_stopped_node_that_waits_for_another_attempt_ends(redis_bench: Bench, redis_server: RedisServer) -> None:
    node = PlanNode("a", "noop", retry=RetryPolicy(3, initial_ms=60_000, jitter=0))
    await redis_bench.submit(replace(plan_of("a", digest="again"), nodes=(node,)))
    (taken,) = await redis_bench.take()
    failure = TaskError("NODE_ERROR", "broke")
    outcome = Outcome(taken.task_id, taken.attempt, taken.nonce, OutcomeKind.FAILED, (), failure)
    await redis_bench.shard.complete([outcome])
    await lose_plans(redis_server)
    await stop(redis_bench)
    assert (await only_component(redis_bench)).skipped == 1
    await check_nothing_in_the_way(redis_bench)


async def test_stopped_items_of_a_mapped_node_end_with_it(redis_bench: Bench, redis_server: RedisServer) -> None:
    await begun(redis_bench, plan(), 3)
    await redis_bench.take(1)
    await lose_plans(redis_server)
    await stop(redis_bench)
    ended = await only_component(redis_bench)
    assert (ended.completed, ended.terminated, ended.skipped) == (1, 1, 1)
    assert sorted(await items(redis_bench, 3)) == ["-", "skipped", "terminated"]
    await check_nothing_in_the_way(redis_bench)


@pytest.mark.parametrize("work", [batch(3), AdHocWork("ann", "noop", ("{}",))], ids=["batch", "task"])
async def test_cancelled_ad_hoc_run_ends(redis_bench: Bench, redis_server: RedisServer, work: AdHocWork) -> None:
    run = await submit(redis_bench, work, "x")
    await lose_plans(redis_server)
    await stop(redis_bench, run, work.submission(run).run_id)
    assert (await component(redis_bench, run)).status is ComponentStatus.FINISHED
    await check_nothing_in_the_way(redis_bench)


async def test_flow_is_removed(redis_bench: Bench, redis_server: RedisServer) -> None:
    await redis_bench.submit(PLAN)
    (running,) = await redis_bench.take(1)
    await lose_plans(redis_server)
    purge = await redis_bench.shard.purge("flow")
    assert purge.done
    assert [each.task_id for each in purge.effects.terminations] == [running.task_id]
    await check_nothing_in_the_way(redis_bench)


async def test_large_flow_is_removed_in_several_steps(redis_bench: Bench, redis_server: RedisServer) -> None:
    await redis_bench.submit(LARGE)
    while (await redis_bench.shard.claim()).todo:
        pass
    await lose_plans(redis_server)
    removed = [await redis_bench.shard.purge("flow")]
    while not removed[-1].done:
        removed.append(await redis_bench.shard.purge("flow"))
    assert sum(purge.removed for purge in removed) == 1201
    assert len(removed) > 2
    await pass_over_queue(redis_bench, redis_server)
    await check_nothing_in_the_way(redis_bench)
    await check_invariants(redis_server)
    assert [key for key in await redis_server.keys() if ":flow" in key] == ["trading_flow:{s0}:purged:flow"]
