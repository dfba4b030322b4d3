"""Batches and ad-hoc tasks in the stores: counts at every moment, lists, times to live."""

import asyncio
import itertools
import random

from tests.servers import RedisServer
from tests.stores.node_task_manager.invariants import check_invariants, check_nothing_left, expire_all
from tests.stores.node_task_manager.shards import LIMITS, Bench, plan_of, redis_shard
from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.batch import ONLY_COMPONENT, BatchProgress, BatchStatus, batch_status
from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.ports.work import Held, Outcome, OutcomeKind, Vacancy
from tradewind.server.clock import ManualClock

WORKERS = 20
BASE = "trading_flow:{s0}:"
DAY = 24 * 3600 * 1000


async def submit(bench: Bench, work: AdHocWork, id: str) -> RunName:
    run = work.run(id)
    await bench.shard.save(work.plan(run))
    (result,) = (await bench.shard.submit([work.submission(run)])).results
    assert result.outcome == "accepted"
    return run


def batch(items: int, user_id: str = "ann") -> AdHocWork:
    return AdHocWork(user_id, "noop", tuple(f'{{"x":{at}}}' for at in range(items)), batch=True)


async def component(bench: Bench, run: RunName) -> Component:
    (found,) = await bench.shard.components([(run, ONLY_COMPONENT)])
    assert found is not None
    return found


async def test_batch_counts_add_up_while_twenty_workers_run_it(redis_server: RedisServer) -> None:
    """They complete, fail, give back and let leases lapse; some items are stopped; the counts always add up."""
    rng, clock = random.Random(7), ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    run = await submit(bench, batch(600), "b")
    seen: list[BatchProgress] = []
    over = asyncio.Event()

    async def work(worker: str) -> None:
        while not over.is_set():
            vacancy = Vacancy(worker, 0, rng.randint(1, 5), ("noop",))
            given = (await bench.shard.claim([vacancy])).assignments
            outcomes = []
            for each in given:
                chance = rng.random()
                if chance < 0.1:
                    await bench.shard.give_back(worker, 0, [Held(each.task_id, each.attempt, each.nonce)])
                elif chance < 0.13:
                    clock.advance(LIMITS.lease_ms + 1)
                    await bench.shard.reap()
                elif chance < 0.16:
                    await bench.shard.terminate(each.task_id, ONLY_COMPONENT, each.index, "no", "ann")
                else:
                    kind = OutcomeKind.FAILED if chance > 0.9 else OutcomeKind.COMPLETED
                    error = TaskError("NODE_ERROR", "broke") if kind is OutcomeKind.FAILED else None
                    outcomes.append(Outcome(each.task_id, each.attempt, each.nonce, kind, (), error))
            if outcomes:
                await bench.shard.complete(outcomes)
            if not given:
                clock.advance(LIMITS.lease_ms + 1)
                await bench.shard.reap()

    async def watch() -> None:
        while not over.is_set():
            found = await component(bench, run)
            seen.append(BatchProgress.of(found))
            if found.status is ComponentStatus.FINISHED:
                over.set()

    await asyncio.gather(watch(), *(work(f"w{at}") for at in range(WORKERS)))
    for progress in seen:
        parts = (progress.queued, progress.running, progress.completed, progress.failed, progress.cancelled)
        assert min(parts) >= 0
        assert sum(parts) == progress.total == 600
    assert all(before.ended <= after.ended for before, after in itertools.pairwise(seen))
    assert max(progress.running for progress in seen) > WORKERS
    tasks = await bench.shard.tasks([run.task_id(str(at)) for at in range(600)])
    statuses = [task.status.value for task in tasks if task is not None]
    last = seen[-1]
    assert (last.completed, last.failed, last.percent) == (statuses.count("completed"), statuses.count("failed"), 100.0)
    assert last.cancelled == statuses.count("terminated") + statuses.count("skipped")
    await check_invariants(redis_server)


async def test_items_of_a_batch_begin_in_order(bench: Bench) -> None:
    await submit(bench, batch(25), "b")
    taken = [given.task_id for count in (1, 3, 30) for given in await bench.take(count)]
    assert taken == [f"batch:b:{at}" for at in range(25)]


async def test_cancelled_batch_counts_completed_and_skipped_items(bench: Bench) -> None:
    run = await submit(bench, batch(4), "b")
    (first, second) = await bench.take(2)
    await bench.complete(first)
    found = await component(bench, run)
    assert (batch_status(found), found.running, found.node_type) == (BatchStatus.RUNNING, 1, "noop")
    await bench.shard.stop(run, found.run_id, "", "enough", "ann", 1000)
    await bench.complete(second)
    progress = BatchProgress.of(await component(bench, run))
    assert (progress.completed, progress.cancelled, progress.running, progress.percent) == (2, 2, 0, 100.0)
    assert batch_status(await component(bench, run)) is BatchStatus.CANCELLED
    assert (await bench.shard.read(dict.fromkeys(range(16), "0"), 10)) == []


async def test_runs_of_a_user_are_listed_newest_first_until_their_records_expire(bench: Bench) -> None:
    batches = []
    for at in range(5):
        batches.append(str(await submit(bench, batch(1), f"b{at}")))
        bench.clock.advance(at % 2)
    task = await submit(bench, AdHocWork("ann", "noop", ("",)), "t")
    await submit(bench, batch(1, "bob"), "other")
    pages = []
    after = None
    while page := await bench.shard.runs_of("ann", "batch", after, 2):
        pages.append([name for _, name in page])
        after = page[-1]
    assert pages == [[batches[4], batches[3]], [batches[2], batches[1]], [batches[0]]]
    assert [name for _, name in await bench.shard.runs_of("ann", "task", None, 10)] == [str(task)]
    listed = await bench.shard.runs_of("ann", "batch", None, 10)
    (first,) = await bench.take(1)
    await bench.complete(first)
    assert await bench.shard.runs_of("ann", "batch", None, 10) == listed
    assert await bench.shard.runs_of("ann", "batch", None, 10, only_open=True) == listed[:4]
    assert await bench.shard.runs_of("ann", "batch", listed[0], 2, only_open=True) == listed[1:3]
    for each in await bench.take():
        await bench.complete(each)
    bench.clock.advance(DAY - 1)
    await bench.shard.clean("c", None)
    assert len(await bench.shard.runs_of("ann", "batch", None, 10)) == 5
    bench.clock.advance(1)
    await bench.shard.clean("c", None)
    assert await bench.shard.runs_of("ann", "batch", None, 10) == []
    assert await bench.shard.runs_of("ann", "task", None, 10) == []


async def test_ended_ad_hoc_runs_and_their_plans_expire(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock), clock)
    work = AdHocWork("ann", "noop", ('{"x":1}',))
    task, many = await submit(bench, work, "t"), await submit(bench, batch(700), "b")
    admin = redis_server.connect()
    assert await admin.pttl(f"{BASE}run:{task}") == -1
    while taken := await bench.take():
        for each in taken:
            await bench.complete(each)
    while (await bench.shard.claim()).todo:
        pass
    for name in (f"run:{task}", f"run:{many}"):
        assert DAY - 10_000 < await admin.pttl(BASE + name) <= DAY, name
    # It is kept as long as any record of a run that used it, not as long as the plans of flows.
    assert DAY < await admin.pttl(f"{BASE}plan:{work.plan_digest(task)}") <= DAY + LIMITS.tombstone_ms
    clock.advance(DAY + 1)
    await expire_all(redis_server)
    while (await bench.shard.clean("c", 0)).more:
        pass
    await check_nothing_left(redis_server)


async def test_purging_a_flow_named_task_keeps_ad_hoc_tasks(bench: Bench) -> None:
    await bench.submit(plan_of("a"), flow_id="task", user_id="ann")
    run = await submit(bench, AdHocWork("ann", "noop", ("",)), "abc")
    assert (await bench.shard.purge("task")).done
    (kept,) = await bench.shard.tasks([str(run)])
    assert kept is not None
    assert [each.task_id for each in await bench.take()] == ["task:abc"]
