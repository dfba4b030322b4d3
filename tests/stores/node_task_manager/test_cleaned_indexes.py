"""What Redis holds about runs besides their records, lists, indexes and times to live, goes with them."""

from tests.servers import RedisServer
from tests.stores.node_task_manager.cleaning import SETTLE, clean, run_cycle, run_cycles, settle
from tests.stores.node_task_manager.invariants import expire_all
from tests.stores.node_task_manager.raw_keys import BASE
from tests.stores.node_task_manager.shards import LIMITS, Bench, plan_of
from tradewind.node_task_manager.ports.work import Vacancy
from tradewind.server.redis.client import Client


async def forget_task(admin: Client, task_id: str) -> None:
    """Remove a node task's record, and leave the rest of its run."""
    run, _, node_id = task_id.rpartition(":")
    assert await admin.execute_command("HDEL", f"{BASE}run:{run}", f"{node_id}:state") == 1


async def test_cleaning_unlists_old_node_tasks_without_a_record(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench, admin = redis_bench, redis_server.connect()
    await bench.submit(plan_of("a b c", schedule_to_start_ms=0))
    await forget_task(admin, "flow:0:0:b")
    bench.clock.advance(LIMITS.retention_ms - 1)
    await clean(bench)
    assert await admin.zcard(BASE + "node_tasks_list") == 3
    bench.clock.advance(1)
    assert sum(step.entries for step in await clean(bench)) == 1
    # Open node tasks stay, however old they are.
    assert await admin.zrange(BASE + "node_tasks_list", 0, -1) == [b"flow:0:0:a", b"flow:0:0:c"]


async def test_cleaning_unlists_node_tasks_that_a_silent_worker_no_longer_holds(
    redis_bench: Bench, redis_server: RedisServer
) -> None:
    bench, admin = redis_bench, redis_server.connect()
    await bench.shard.open_session("w1", "i", [])
    bench.clock.advance(LIMITS.silent_ms - 1)
    await bench.submit(plan_of("a b", start_to_close_ms=0))
    a, b = (await bench.shard.claim([Vacancy("w1", 0, 9, ("noop",))])).assignments
    bench.clock.advance(1)
    await clean(bench)
    assert await admin.zcard(BASE + "worker_tasks:w1") == 2, "it holds them still: they are for the next time"
    await forget_task(admin, a.task_id)
    bench.clock.advance(LIMITS.silent_ms)
    await bench.shard.reap()
    assert await admin.zrange(BASE + "worker_tasks:w1", 0, -1) == [a.task_id.encode()]
    assert sum(step.entries for step in await clean(bench)) == 1
    assert not await admin.exists(BASE + "worker_tasks:w1")
    assert (await bench.shard.tasks([b.task_id]))[0] is not None


async def test_renewing_unlists_node_tasks_without_a_record(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench, admin = redis_bench, redis_server.connect()
    session = (await bench.shard.open_session("w1", "i", [])).session
    await bench.submit(plan_of("a b"))
    await bench.shard.claim([Vacancy("w1", session, 9, ("noop",))])
    await forget_task(admin, "flow:0:0:a")
    await bench.shard.renew("w1", session, [])
    assert await admin.zrange(BASE + "worker_tasks:w1", 0, -1) == [b"flow:0:0:b"]


async def test_cleaning_unlists_dead_letters_without_a_record(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench, admin = redis_bench, redis_server.connect()
    await bench.submit(plan_of("a"))
    for _ in range(LIMITS.losses):
        await bench.take()
        bench.clock.advance(LIMITS.lease_ms)
        await bench.shard.reap()
    assert await admin.zcard(BASE + "dead_letters:default") == 1
    bench.clock.advance(LIMITS.retention_ms)
    await clean(bench)
    assert await admin.zcard(BASE + "dead_letters:default") == 1
    await forget_task(admin, "flow:0:0:a")
    bench.clock.advance(LIMITS.tombstone_ms)
    await clean(bench)
    assert not await admin.exists(BASE + "dead_letters:default")


async def test_keep_for_sets_the_time_to_live_of_a_run(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench, admin = redis_bench, redis_server.connect()
    hour = 3_600_000
    for cycle, keep_for in enumerate((2 * hour, 100 * hour, 0)):
        await run_cycle(bench, cycle, plan_of("a>b"), keep_for=keep_for)
    await settle(bench)
    for cycle, expected in enumerate((2 * hour, 100 * hour, LIMITS.retention_ms)):
        assert expected - SETTLE - 10_000 < await admin.pttl(f"{BASE}run:flow:{cycle}:0") <= expected, cycle


async def test_purge_removes_what_cleaning_stores_about_the_flow(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench = redis_bench
    for cycle in range(3):
        await run_cycle(bench, cycle, plan_of("a"))
    await settle(bench)
    while not (await bench.shard.purge("flow")).done:
        pass
    assert [key for key in await redis_server.keys() if ":flow" in key] == [f"{BASE}purged:flow"]
    bench.clock.advance(SETTLE)
    await clean(bench)
    assert not await redis_server.connect().exists(BASE + "to_clean")


async def test_flow_index_lasts_while_a_run_of_the_flow_is_on_record(
    redis_bench: Bench, redis_server: RedisServer
) -> None:
    """A purge finds the flow's runs by this index, even when a run waits for long or the flow has not run for long."""
    bench, index, admin = redis_bench, BASE + "flow_runs:flow", redis_server.connect()
    for cycle in range(3):
        await run_cycle(bench, cycle, plan_of("a"))
    await bench.submit(plan_of("a"), cycle=3)
    await settle(bench)
    assert await admin.zcard(index) == 4
    await expire_all(redis_server)
    bench.clock.advance(LIMITS.retention_ms)
    await clean(bench)
    assert await admin.zrange(index, 0, -1) == [b"3:0"]
    (given,) = await bench.take()
    await bench.complete(given)
    await settle(bench)
    await expire_all(redis_server)
    bench.clock.advance(LIMITS.retention_ms)
    await clean(bench)
    assert not await admin.exists(index, BASE + "to_clean")


async def test_expired_runs_leave_the_flow_index(redis_bench: Bench, redis_server: RedisServer) -> None:
    bench, index, admin = redis_bench, BASE + "flow_runs:flow", redis_server.connect()
    await run_cycles(bench, range(110), plan_of("a"), keep=200)
    await settle(bench)
    await expire_all(redis_server)
    # Two leave it whenever another run has ended,
    await run_cycle(bench, 110, plan_of("a"), keep=200)
    await settle(bench)
    assert (await admin.zcard(index), await admin.zrange(index, 0, 0)) == (109, [b"2:0"])
    # and all others when the flow has not run for long.
    await expire_all(redis_server)
    bench.clock.advance(LIMITS.retention_ms)
    await clean(bench)
    assert not await admin.exists(index, BASE + "to_clean")
