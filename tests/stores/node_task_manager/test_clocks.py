"""What the contract says about silence and the total time of a node task, for every store."""

from tests.stores.node_task_manager.shards import Bench, plan_of, task_of
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.reading import Progress
from tradewind.node_task_manager.ports.work import Assignment, Held, Outcome, OutcomeKind

PATIENT = RetryPolicy(attempts=3, initial_ms=1_000, jitter=0, factor=1)


async def begun(bench: Bench, **options: object) -> Assignment:
    """Submit a flow of one node and return its first attempt."""
    await bench.submit(plan_of("a", **options))  # type: ignore[arg-type]
    (first,) = await bench.take()
    return first


def held(assignment: Assignment) -> Held:
    return Held(assignment.task_id, assignment.attempt, assignment.nonce)


async def say(bench: Bench, assignment: Assignment, progress: int = 0) -> None:
    await bench.shard.record([Progress(assignment.task_id, assignment.nonce, progress, "")], [])


async def test_an_attempt_that_is_silent_for_too_long_is_stopped_and_tried_again(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000, retry=PATIENT)
    assert (await task_of(bench)).lease_deadline == bench.clock() + 5_000
    bench.clock.advance(5_000)
    effects = await bench.shard.reap()
    (stopped,) = effects.terminations
    assert (stopped.task_id, stopped.nonce, stopped.stop.by) == (first.task_id, first.nonce, "system")
    waiting = await task_of(bench)
    assert (waiting.status, waiting.failures, waiting.lost) == (NodeTaskStatus.PENDING, 1, 0)
    assert waiting.error == TaskError("HEARTBEAT_TIMEOUT", "attempt 1 sent no heartbeat for 5 s on worker w1", final="")
    assert (await bench.complete(first)).startswith("the lease lapsed")


async def test_progress_is_a_sign_of_life_and_keeps_the_lease(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000, start_to_close_ms=0)
    for at in range(20):
        bench.clock.advance(4_000)
        await say(bench, first, at)
        assert (await bench.shard.reap()).results == ()
    assert (await task_of(bench)).lease_deadline == bench.clock() + 5_000
    assert await bench.complete(first) == ""


async def test_the_same_progress_again_is_a_sign_of_life_too(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    for _ in range(3):
        bench.clock.advance(4_000)
        await say(bench, first)
    assert (await bench.shard.reap()).results == ()


async def test_renewing_the_lease_is_none(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    bench.clock.advance(4_000)
    await bench.shard.renew("w1", 0, [held(first)])
    bench.clock.advance(1_000)
    assert (await bench.shard.reap()).results == (first.task_id,)
    failed = await task_of(bench)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == (NodeTaskStatus.FAILED, "HEARTBEAT_TIMEOUT")


async def test_a_worker_that_comes_back_begins_its_silence_anew(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    bench.clock.advance(4_999)
    await bench.shard.open_session("w1", "i1", [held(first)])
    assert (await task_of(bench)).lease_deadline == bench.clock() + 5_000


async def test_all_that_a_worker_names_when_it_is_back_may_be_silent_anew(bench: Bench) -> None:
    names = [f"n{place}" for place in range(510)]
    await bench.submit(plan_of(" ".join(names), heartbeat_ms=5_000))
    given = list[Assignment]()
    while taken := await bench.take(510):
        given += taken
    bench.clock.advance(4_000)
    await bench.shard.open_session("w1", "i1", [held(each) for each in given])
    bench.clock.advance(4_000)
    assert (len(given), (await bench.shard.reap()).results) == (510, ())


async def test_what_was_asked_to_stop_is_not_kept_by_signs_of_life(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    await bench.shard.terminate(first.task_id, "0", 0, "enough", "ann")
    deadline = (await task_of(bench)).lease_deadline
    await say(bench, first)
    assert (await task_of(bench)).lease_deadline == deadline


async def test_the_total_time_ends_an_attempt_and_the_worker_knows_when(bench: Bench) -> None:
    await bench.submit(plan_of("a", total_ms=60_000, retry=PATIENT))
    bench.clock.advance(20_000)
    (first,) = await bench.take()
    assert first.deadline_ms == bench.clock() + 40_000
    for _ in range(5):
        bench.clock.advance(10_000)
        await bench.shard.renew("w1", 0, [held(first)])
    assert (await bench.shard.reap()).results == (first.task_id,)
    failed = await task_of(bench)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == (NodeTaskStatus.FAILED, "TOTAL_TIMEOUT")
    assert failed.error.final == "the total time would end before the next attempt could begin"


async def test_the_total_time_goes_on_over_all_attempts(bench: Bench) -> None:
    first = await begun(bench, total_ms=60_000, retry=PATIENT)
    bench.clock.advance(30_000)
    error = TaskError("NODE_ERROR", "broke")
    outcome = Outcome(first.task_id, first.attempt, first.nonce, OutcomeKind.FAILED, (), error)
    await bench.shard.complete([outcome])
    bench.clock.advance(1_000)
    (second,) = await bench.take()
    assert second.deadline_ms == bench.clock() + 29_000


async def test_no_attempt_is_waited_for_that_would_begin_after_the_total_time(bench: Bench) -> None:
    first = await begun(bench, total_ms=60_000, retry=PATIENT)
    bench.clock.advance(59_500)
    error = TaskError("NODE_ERROR", "broke")
    outcome = Outcome(first.task_id, first.attempt, first.nonce, OutcomeKind.FAILED, (), error)
    assert (await bench.shard.complete([outcome])).due_in == -1
    assert (await task_of(bench)).status is NodeTaskStatus.FAILED


async def test_the_total_time_ends_a_wait_for_a_worker(bench: Bench) -> None:
    await bench.submit(plan_of("a", total_ms=60_000, schedule_to_start_ms=0))
    bench.clock.advance(60_000)
    await bench.shard.reap()
    failed = await task_of(bench)
    assert failed.error == TaskError("TOTAL_TIMEOUT", "no attempt succeeded within the total time of 1 min")


async def test_an_attempt_with_a_shorter_limit_of_its_own_ends_by_that(bench: Bench) -> None:
    first = await begun(bench, total_ms=60_000, start_to_close_ms=10_000)
    assert first.deadline_ms == bench.clock() + 10_000
    bench.clock.advance(20_000)
    await bench.shard.reap()
    failed = await task_of(bench)
    assert failed.error is not None
    assert failed.error.code == "TIMEOUT"


async def test_what_is_older_than_a_start_is_spared_until_workers_had_a_lease_to_come_back(bench: Bench) -> None:
    """Its lease lapsed, or its silence or its wait became too long, while no process was there."""
    await bench.submit(plan_of("a b", heartbeat_ms=5_000, schedule_to_start_ms=5_000))
    (given,) = await bench.take(1)
    bench.clock.advance(40_000)
    for spare_ms, passed in ((30_000, 5_000), (25_000, 24_000), (1_000, 1_000)):
        assert (await bench.shard.reap(spare_ms=spare_ms)).results == ()
        bench.clock.advance(passed)
    assert set((await bench.shard.reap()).results) == {given.task_id, "flow:0:0:b"}


async def test_nothing_ends_by_a_look_that_comes_too_late(bench: Bench) -> None:
    """A store that hangs carries out such a look before it hears of the renewals made meanwhile."""
    await bench.submit(plan_of("a b", schedule_to_start_ms=5_000))
    (given,) = await bench.take(1)
    by_ms = bench.clock() + 2_000
    bench.clock.advance(40_000)

    effects = await bench.shard.reap(by_ms=by_ms)
    assert (effects.results, effects.late) == ((), True)
    effects = await bench.shard.reap(by_ms=bench.clock())
    assert (set(effects.results), effects.late) == ({given.task_id, "flow:0:0:b"}, False)


async def test_the_clocks_of_what_began_after_a_start_go_at_once(bench: Bench) -> None:
    bench.clock.advance(100_000)
    plan = plan_of("a b", heartbeat_ms=2_000, schedule_to_start_ms=2_000)
    await bench.submit(plan)
    (a,) = await bench.take(1)
    bench.clock.advance(2_000)
    assert set((await bench.shard.reap(spare_ms=20_000)).results) == {a.task_id, "flow:0:0:b"}


async def test_the_total_time_of_what_waits_is_over_for_what_is_older_than_a_start_as_well(bench: Bench) -> None:
    await bench.submit(plan_of("a", total_ms=60_000))
    bench.clock.advance(60_000)
    assert (await bench.shard.reap(spare_ms=30_000)).results == ("flow:0:0:a",)
