"""Deleting batches: nothing of one is left, and nothing else is touched."""

from dataclasses import replace

import pytest
from redis.exceptions import RedisError

from tests.no_writes import REFUSALS, refusing_writes
from tests.servers import RedisServer
from tests.stores.node_task_manager.invariants import check_invariants, check_nothing_left
from tests.stores.node_task_manager.shards import LIMITS, Bench, held, memory_shard, plan_of, redis_shard
from tests.stores.node_task_manager.test_batches import batch, component, submit
from tradewind.node_task_manager.domain.batch import ONLY_COMPONENT, BatchStatus, Deletion, batch_status
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.reading import Line
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.server.clock import ManualClock

FULL = next(reason for reason in REFUSALS if "out of memory" in reason)
BROKE = TaskError("NODE_ERROR", "broke")


async def submit_and_end(bench: Bench, items: int, id: str, *, failed: int = 0) -> RunName:
    """Run a batch of which the first `failed` items are given up, and each item says a line."""
    work = replace(batch(items), retry=RetryPolicy(2, non_retryable=("NODE_ERROR",)))
    run = await submit(bench, work, id)
    while taken := await bench.take(500):
        for at, given in enumerate(taken):
            await bench.shard.record([], [Line(given.task_id, 1, given.nonce, "INFO", "node", "hello", bench.clock())])
            kind, error = (OutcomeKind.FAILED, BROKE) if at < failed else (OutcomeKind.COMPLETED, None)
            await bench.shard.complete([Outcome(given.task_id, 1, given.nonce, kind, (), error)])
    return run


async def test_nothing_is_left_of_a_deleted_batch(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    run = await submit(bench, batch(1200), "b")
    found = await component(bench, run)
    (first,) = await bench.take(1)
    await bench.shard.record([], [Line(first.task_id, 1, first.nonce, "INFO", "node", "hello", clock())])
    await bench.shard.stop(run, found.run_id, "", "enough", "ann", 1000)
    while (await bench.shard.claim()).todo:
        pass
    await bench.complete(first)
    assert batch_status(await component(bench, run)) is BatchStatus.CANCELLED
    assert await bench.shard.delete_batch(run, "ann") is Deletion.DELETED
    await check_nothing_left(redis_server)
    left = [name for name in await redis_server.keys() if "batch:" in name or "plan:" in name]
    assert left == []


async def test_deleted_batch_is_gone_for_everybody(bench: Bench) -> None:
    run = await submit_and_end(bench, 3, "b", failed=2)
    other = await submit_and_end(bench, 3, "other", failed=2)
    assert len(await bench.shard.dead_letters("ann", None, 10)) == 4
    assert await bench.shard.delete_batch(run, "ann") is Deletion.DELETED
    assert await bench.shard.components([(run, ONLY_COMPONENT)]) == [None]
    assert await bench.shard.tasks([run.task_id("0")]) == [None]
    assert await bench.shard.lines(run, "", 10) == []
    assert [name for _, name in await bench.shard.runs_of("ann", "batch", None, 10)] == [str(other)]
    assert [name for _, name in await bench.shard.dead_letters("ann", None, 10)] == ["batch:other:1", "batch:other:0"]
    assert await bench.shard.delete_batch(run, "ann") is Deletion.UNKNOWN


async def test_batch_of_the_same_items_keeps_its_plan_and_its_results(bench: Bench) -> None:
    run, other = await submit_and_end(bench, 3, "b"), await submit_and_end(bench, 3, "other")
    await bench.shard.delete_batch(run, "ann")
    plan = await bench.shard.load((await component(bench, other)).plan)
    assert plan is not None
    assert [node.config_json for node in plan.nodes] == ['{"x":0}', '{"x":1}', '{"x":2}']
    assert None not in await bench.shard.tasks([other.task_id(str(at)) for at in range(3)])
    assert len(await bench.shard.lines(other, "", 10)) == 3


async def test_outcome_of_a_deleted_batch_does_not_count_for_another_of_its_name(bench: Bench) -> None:
    run = await submit(bench, batch(1), "b")
    (old,) = await bench.take()
    await bench.shard.stop(run, (await component(bench, run)).run_id, "", "wrong", "ann", 1000)
    bench.clock.advance(60_000)
    await bench.shard.reap()
    assert await bench.shard.delete_batch(run, "ann") is Deletion.DELETED
    await submit(bench, replace(batch(1), parameters=('{"x":7}',)), "b")
    assert (await bench.complete(old, output='"old"')).startswith("the lease lapsed")
    (new,) = await bench.take()
    assert (await bench.complete(old, output='"old"')).startswith("the lease lapsed")
    assert await bench.complete(new, output='"new"') == ""


async def test_open_batch_and_batch_of_another_user_stay(bench: Bench) -> None:
    run = await submit(bench, batch(2), "b")
    (first, second) = await bench.take(2)
    await bench.complete(first)
    assert await bench.shard.delete_batch(run, "ann") is Deletion.OPEN
    await bench.complete(second)
    assert await bench.shard.delete_batch(run, "bob") is Deletion.UNKNOWN
    assert batch_status(await component(bench, run)) is BatchStatus.COMPLETED


async def test_batch_is_deleted_while_the_store_is_full(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    run = await submit_and_end(bench, 3, "b")
    async with refusing_writes(redis_server, FULL):
        with pytest.raises(RedisError, match="maxmemory"):
            await bench.shard.purge("flow")
        assert await bench.shard.delete_batch(run, "ann") is Deletion.DELETED
    await check_nothing_left(redis_server)


async def test_batch_submitted_again_after_its_deletion_runs_whole(redis_server: RedisServer) -> None:
    """Not even work that an earlier script left for the deleted batch reaches the new one."""
    clock, limits = ManualClock(), replace(LIMITS, records_per_script=3)
    for shard in (memory_shard(clock, limits), redis_shard(redis_server, clock, limits)):
        bench = Bench(shard, clock)
        run = await submit(bench, batch(10), "b")
        taken = [given for _ in range(10) for given in await bench.take(1)]
        for given in taken[1:]:
            await bench.complete(given)
        await shard.give_back("w1", 0, held(taken[0]))
        found = await component(bench, run)
        await shard.stop(run, found.run_id, "", "enough", "ann", 1000)
        assert batch_status(await component(bench, run)) is BatchStatus.CANCELLED
        assert await shard.delete_batch(run, "ann") is Deletion.DELETED
        await submit(bench, batch(10), "b")
        while (await shard.claim()).todo:
            pass
        again = [given.task_id for _ in range(10) for given in await bench.take(1)]
        assert again == [f"batch:b:{at}" for at in range(10)]
    await check_invariants(redis_server)


async def test_late_stop_of_a_deleted_batch_spares_the_next_of_its_name(bench: Bench) -> None:
    run = await submit_and_end(bench, 3, "b")
    found = await component(bench, run)
    assert await bench.shard.delete_batch(run, "ann") is Deletion.DELETED
    await bench.shard.stop(run, found.run_id, "", "enough", "ann", 3_600_000)
    await submit(bench, batch(3), "b")
    assert len(await bench.take(5)) == 3


async def test_items_that_were_left_to_begin_do_not_begin_in_the_next_batch_of_the_name(
    redis_server: RedisServer,
) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    large, work = plan_of(" ".join(f"n{at}" for at in range(1500))), replace(batch(100), node_type="other")
    run = work.run("b")
    for plan in (large, work.plan(run)):
        await bench.shard.save(plan)
    # The nodes of the flow take all that one script may do, so the batch waits to begin.
    flow = RunSubmission(RunName("flow", 0, 0), "r0", "ann", (("0", large.digest),), partition=3, begun_ms=clock())
    await bench.shard.submit([flow, work.submission(run)])
    found = await component(bench, run)
    await bench.shard.stop(run, found.run_id, "", "enough", "ann", 1000)
    assert await bench.shard.delete_batch(run, "ann") is Deletion.DELETED
    await submit(bench, work, "b")
    taken = 0
    while given := await bench.take(50, "w1", "other"):
        taken += len(given)
        for each in given:
            await bench.complete(each)
    assert taken == (await component(bench, run)).completed == 100
    await check_invariants(redis_server)
