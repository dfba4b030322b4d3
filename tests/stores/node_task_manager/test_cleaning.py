"""What is kept of ended runs, and who cleans up: the contract of `clean`, for every store."""

from dataclasses import replace

from tests.servers import RedisServer
from tests.stores.node_task_manager.cleaning import (
    PARTITION,
    SETTLE,
    acknowledge,
    clean,
    kept,
    run_cycle,
    run_cycles,
    settle,
)
from tests.stores.node_task_manager.shards import LIMITS, RUN, Bench, memory_shard, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.ports.reading import Line
from tradewind.server.clock import ManualClock

"""What is kept of ended runs, and who cleans up: the contract of `clean`, for every store."""


async def test_cleaning_keeps_the_newest_cycles_and_removes_the_rest_entirely(bench: Bench) -> None:
    plan = plan_of("a>b c")
    for cycle in range(6):
        await run_cycle(bench, cycle, plan, keep=2)
    steps = await settle(bench)
    assert (sum(step.runs for step in steps), sum(step.node_tasks for step in steps)) == (4, 12)
    assert await kept(bench, range(6)) == [4, 5]
    assert set((await bench.statuses(plan, cycle=3)).values()) == {"-"}
    assert set((await bench.statuses(plan, cycle=4)).values()) == {"completed"}
    assert (await bench.shard.cleaned())["node_tasks"] == 12


async def test_a_hundred_cycles_are_kept_by_default(bench: Bench) -> None:
    await run_cycles(bench, range(103), plan_of("a"))
    await settle(bench)
    assert await kept(bench, range(103)) == list(range(3, 103))


async def test_recently_ended_cycles_are_kept(bench: Bench) -> None:
    for cycle in range(3):
        await run_cycle(bench, cycle, plan_of("a"), keep=1)
    await acknowledge(bench)
    bench.clock.advance(SETTLE - 1)
    await clean(bench)
    assert await kept(bench, range(3)) == [0, 1, 2]
    bench.clock.advance(1)
    await clean(bench)
    assert await kept(bench, range(3)) == [2]


async def test_cycles_with_unacknowledged_events_are_kept(bench: Bench) -> None:
    """The scheduler would submit again what it does not find."""
    for cycle in range(3):
        await run_cycle(bench, cycle, plan_of("a"), keep=1)
    for _ in range(3):
        bench.clock.advance(SETTLE)
        await clean(bench)
    assert await kept(bench, range(3)) == [0, 1, 2]
    await settle(bench)
    assert await kept(bench, range(3)) == [2]


async def test_open_run_is_kept_however_old_its_cycle(bench: Bench) -> None:
    plan = plan_of("a>b")
    await bench.submit(plan, cycle=0)
    (open_one,) = await bench.take()
    for cycle in range(1, 5):
        await run_cycle(bench, cycle, plan_of("c"), keep=1)
    await acknowledge(bench)
    bench.clock.advance(SETTLE)
    # The node task that its worker held comes back first.
    await bench.shard.reap()
    await clean(bench)
    assert await kept(bench, range(5)) == [0, 4]
    assert (await bench.statuses(plan))["a"] == "pending"
    assert open_one.task_id == "flow:0:0:a"


async def test_cycle_is_removed_when_its_keep_for_time_is_over(bench: Bench) -> None:
    await run_cycle(bench, 0, plan_of("a"), keep_for=SETTLE)
    await run_cycle(bench, 1, plan_of("a"))
    await settle(bench)
    assert await kept(bench, range(2)) == [1]


async def test_lower_keep_cycles_applies_once_the_next_cycle_ends(bench: Bench) -> None:
    for cycle in range(5):
        await run_cycle(bench, cycle, plan_of("a"), keep=9)
    await run_cycle(bench, 5, plan_of("a"), keep=2)
    await settle(bench)
    assert await kept(bench, range(6)) == [4, 5]


async def test_over_a_hundred_cycles_are_removed_when_the_next_one_keeps_few(bench: Bench) -> None:
    await run_cycles(bench, range(120), plan_of("a"), keep=200)
    bench.clock.advance(1)
    await run_cycle(bench, 120, plan_of("a"), keep=2)
    await settle(bench)
    assert await kept(bench, range(121)) == [119, 120]


async def test_run_with_over_a_piece_of_nodes_is_removed_entirely(bench: Bench) -> None:
    await run_cycles(bench, range(1), plan_of(" ".join(f"n{at}" for at in range(600))), keep=1)
    await run_cycle(bench, 1, plan_of("a"), keep=1)
    steps = await settle(bench)
    assert (sum(step.runs for step in steps), sum(step.node_tasks for step in steps)) == (1, 600)


async def test_log_lines_and_dead_letters_are_removed_with_their_cycle(bench: Bench) -> None:
    # A dead letter without a retry policy: it lost its worker too often.
    await bench.submit(plan_of("a"), cycle=0)
    for _ in range(LIMITS.losses):
        (a,) = await bench.take()
        assert await bench.shard.record([], [Line(a.task_id, a.attempt, a.nonce, "INFO", "node", "hello", 1)]) == 1
        bench.clock.advance(LIMITS.lease_ms)
        await bench.shard.reap()
    assert [task_id for _, task_id in await bench.shard.dead_letters("default", None, 9)] == ["flow:0:0:a"]
    assert len(await bench.shard.lines(RUN, "", 9)) == 2 * LIMITS.losses, "each loss is a line as well"
    await run_cycle(bench, 1, plan_of("a"), keep=1)
    await settle(bench)
    assert await bench.shard.dead_letters("default", None, 9) == []
    assert await bench.shard.lines(RUN, "", 9) == []


async def test_one_replica_cleans_until_it_leaves(bench: Bench) -> None:
    for cycle in range(3):
        await run_cycle(bench, cycle, plan_of("a"), keep=1)
    await acknowledge(bench)
    assert (await clean(bench, "first"))[-1].leads
    bench.clock.advance(SETTLE)
    assert (await clean(bench, "first"))[-1].leads
    for cycle in range(3, 6):
        await run_cycle(bench, cycle, plan_of("a"), keep=1)
    await acknowledge(bench)
    assert not (await clean(bench, "second"))[-1].leads
    await bench.shard.leave_cleaning("second")
    assert not (await clean(bench, "second"))[-1].leads
    assert await kept(bench, range(6)) == [2, 3, 4, 5]
    await bench.shard.leave_cleaning("first")
    bench.clock.advance(SETTLE)
    assert (await clean(bench, "second"))[-1].leads
    assert await kept(bench, range(6)) == [5]


async def test_cleaning_waits_until_lapsed_leases_are_reaped(bench: Bench) -> None:
    for cycle in range(3):
        await run_cycle(bench, cycle, plan_of("a"), keep=1)
    await acknowledge(bench)
    await bench.submit(plan_of("b"), cycle=9)
    assert len(await bench.take()) == 1
    bench.clock.advance(max(SETTLE, LIMITS.lease_ms))
    (step,) = await clean(bench)
    assert (step.leads, step.waits, step.runs) == (True, True, 0)
    assert await kept(bench, range(3)) == [0, 1, 2]
    await bench.shard.reap()
    await clean(bench)
    assert await kept(bench, range(3)) == [2]


async def test_run_of_several_components_is_removed_as_a_whole(bench: Bench) -> None:
    plans = [plan_of("a>b"), plan_of("c")]
    for plan in plans:
        await bench.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    for cycle in range(2):
        run = RunSubmission(RunName("flow", cycle, 0), f"r{cycle}", "default", parts, PARTITION, keep_cycles=1)
        await bench.shard.submit([run])
        while taken := await bench.take():
            for each in taken:
                await bench.complete(each, out="1")
    steps = await settle(bench)
    assert (sum(step.runs for step in steps), sum(step.node_tasks for step in steps)) == (1, 3)
    assert await bench.shard.components([(RunName("flow", 0, 0), at) for at in "01"]) == [None, None]


async def test_cleaning_proceeds_while_runs_begin_and_end(redis_server: RedisServer) -> None:
    """Between any two steps runs begin and end; open runs are not touched, and in the end the newest are there."""
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock, replace(LIMITS, clean_keys=10)), clock)
    plan = plan_of(" ".join(f"n{at}" for at in range(8)))
    for cycle in range(8):
        await run_cycle(bench, cycle, plan, keep=2)
    await acknowledge(bench)
    bench.clock.advance(SETTLE)
    cycle, more, place = 8, True, 0
    while more:
        step = await bench.shard.clean("c", place)
        more, place = step.more, step.place or 0
        if cycle < 12:
            await bench.submit(plan, cycle=cycle, run_id=f"r{cycle}")
            taken = await bench.take(4)
            for each in taken:
                assert await bench.complete(each, out="1") == ""
            assert "-" not in (await bench.statuses(plan, cycle=cycle)).values()
            cycle += 1
    assert cycle == 12, "there were too few steps"
    assert await kept(bench, range(12)) == [6, 7, 8, 9, 10, 11]


async def test_cleaning_says_how_far_it_is_behind(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock, replace(LIMITS, clean_keys=10)), clock)
    for cycle in range(4):
        await run_cycle(bench, cycle, plan_of("a"), keep=1)
    await acknowledge(bench)
    clock.advance(SETTLE + 700)
    steps = await clean(bench)
    assert (steps[0].behind, steps[-1].behind) == (700, 0)


async def test_cleaning_step_touches_a_bounded_number_of_records(redis_server: RedisServer) -> None:
    clock = ManualClock()
    bench = Bench(redis_shard(redis_server, clock, replace(LIMITS, clean_keys=40)), clock)
    plan = plan_of(" ".join(f"n{at}" for at in range(100)))
    for cycle in range(4):
        await run_cycle(bench, cycle, plan, keep=1)
    await acknowledge(bench)
    clock.advance(SETTLE)
    admin, more, removed = redis_server.connect(), True, 0
    while more:
        before = await admin.execute_command("DBSIZE")
        step = await bench.shard.clean("c", 0)
        # A step ends with the component and the run that it has reached.
        assert before - await admin.execute_command("DBSIZE") <= 40 + 4
        assert step.keys <= 40 + 4
        more, removed = step.more, removed + step.node_tasks
    assert removed == 300


async def test_cleaner_lease_lapses_in_memory() -> None:
    clock = ManualClock()
    shard = memory_shard(clock, Limits())
    assert (await shard.clean("first", 0)).leads
    clock.advance(LIMITS.cleaner_lease_ms - 1)
    assert not (await shard.clean("second", 0)).leads
    clock.advance(1)
    assert (await shard.clean("second", 0)).leads


async def test_cleaner_lease_expires_in_redis(redis_server: RedisServer) -> None:
    clock = ManualClock()
    shard = redis_shard(redis_server, clock)
    assert (await shard.clean("first", 0)).leads
    left = await redis_server.connect().pttl("trading_flow:{s0}:cleaner")
    assert 0 < left <= LIMITS.cleaner_lease_ms
