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


async def report_progress(bench: Bench, assignment: Assignment, progress: int = 0) -> None:
    await bench.shard.record([Progress(assignment.task_id, assignment.nonce, progress, "")], [])


async def test_total_time_counts_from_the_planned_time_of_a_cycle_due_in_a_moment(bench: Bench) -> None:
    planned_ms = bench.clock() + 700
    await bench.submit(plan_of("a", total_ms=500), planned_ms=planned_ms)
    bench.clock.advance(600)
    await bench.shard.reap()
    (first,) = await bench.take()
    assert first.deadline_ms == planned_ms + 500


async def test_wait_for_a_worker_counts_from_the_planned_time_of_a_cycle_due_in_a_moment(bench: Bench) -> None:
    await bench.submit(plan_of("a", schedule_to_start_ms=500), planned_ms=bench.clock() + 700)
    bench.clock.advance(1_199)
    await bench.shard.reap()
    assert (await task_of(bench)).status == "pending"
    bench.clock.advance(1)
    await bench.shard.reap()
    error = (await task_of(bench)).error
    assert error is not None
    assert error.code == "START_TIMEOUT"


async def test_silent_attempt_is_stopped_and_retried(bench: Bench) -> None:
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


async def test_progress_counts_as_heartbeat_and_extends_the_lease(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000, start_to_close_ms=0)
    for at in range(20):
        bench.clock.advance(4_000)
        await report_progress(bench, first, at)
        assert (await bench.shard.reap()).results == ()
    assert (await task_of(bench)).lease_deadline == bench.clock() + 5_000
    assert await bench.complete(first) == ""


async def test_unchanged_progress_counts_as_heartbeat(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    for _ in range(3):
        bench.clock.advance(4_000)
        await report_progress(bench, first)
    assert (await bench.shard.reap()).results == ()


async def test_renewing_the_lease_is_no_heartbeat(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    bench.clock.advance(4_000)
    await bench.shard.renew("w1", 0, [held(first)])
    bench.clock.advance(1_000)
    assert (await bench.shard.reap()).results == (first.task_id,)
    failed = await task_of(bench)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == (NodeTaskStatus.FAILED, "HEARTBEAT_TIMEOUT")


async def test_reconnecting_restarts_the_heartbeat_timeout(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    bench.clock.advance(4_999)
    await bench.shard.open_session("w1", "i1", [held(first)])
    assert (await task_of(bench)).lease_deadline == bench.clock() + 5_000


async def test_reconnecting_restarts_the_heartbeat_timeout_of_510_node_tasks(bench: Bench) -> None:
    names = [f"n{place}" for place in range(510)]
    await bench.submit(plan_of(" ".join(names), heartbeat_ms=5_000))
    given = list[Assignment]()
    while taken := await bench.take(510):
        given += taken
    bench.clock.advance(4_000)
    await bench.shard.open_session("w1", "i1", [held(each) for each in given])
    bench.clock.advance(4_000)
    assert (len(given), (await bench.shard.reap()).results) == (510, ())


async def test_heartbeat_does_not_extend_the_lease_of_a_stopping_attempt(bench: Bench) -> None:
    first = await begun(bench, heartbeat_ms=5_000)
    await bench.shard.terminate(first.task_id, "0", 0, "enough", "ann")
    deadline = (await task_of(bench)).lease_deadline
    await report_progress(bench, first)
    assert (await task_of(bench)).lease_deadline == deadline


async def test_total_time_ends_an_attempt_and_sets_its_deadline(bench: Bench) -> None:
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


async def test_total_time_spans_all_attempts(bench: Bench) -> None:
    first = await begun(bench, total_ms=60_000, retry=PATIENT)
    bench.clock.advance(30_000)
    error = TaskError("NODE_ERROR", "broke")
    outcome = Outcome(first.task_id, first.attempt, first.nonce, OutcomeKind.FAILED, (), error)
    await bench.shard.complete([outcome])
    bench.clock.advance(1_000)
    (second,) = await bench.take()
    assert second.deadline_ms == bench.clock() + 29_000


async def test_no_retry_is_scheduled_after_the_total_time(bench: Bench) -> None:
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


async def test_attempt_timeout_shorter_than_the_total_time_applies_first(bench: Bench) -> None:
    first = await begun(bench, total_ms=60_000, start_to_close_ms=10_000)
    assert first.deadline_ms == bench.clock() + 10_000
    bench.clock.advance(20_000)
    await bench.shard.reap()
    failed = await task_of(bench)
    assert failed.error is not None
    assert failed.error.code == "TIMEOUT"


async def test_reaper_spares_what_began_before_its_start_for_one_lease(bench: Bench) -> None:
    """Its lease lapsed, or its silence or its wait became too long, while no process was there."""
    await bench.submit(plan_of("a b", heartbeat_ms=5_000, schedule_to_start_ms=5_000))
    (given,) = await bench.take(1)
    bench.clock.advance(40_000)
    for spare_ms, passed in ((30_000, 5_000), (25_000, 24_000), (1_000, 1_000)):
        assert (await bench.shard.reap(spare_ms=spare_ms)).results == ()
        bench.clock.advance(passed)
    assert set((await bench.shard.reap()).results) == {given.task_id, "flow:0:0:b"}


async def test_late_reap_ends_nothing(bench: Bench) -> None:
    """A store that hangs carries out such a look before it hears of the renewals made meanwhile."""
    await bench.submit(plan_of("a b", schedule_to_start_ms=5_000))
    (given,) = await bench.take(1)
    by_ms = bench.clock() + 2_000
    bench.clock.advance(40_000)

    effects = await bench.shard.reap(by_ms=by_ms)
    assert (effects.results, effects.late) == ((), True)
    effects = await bench.shard.reap(by_ms=bench.clock())
    assert (set(effects.results), effects.late) == ({given.task_id, "flow:0:0:b"}, False)


async def test_reaper_does_not_spare_what_began_after_its_start(bench: Bench) -> None:
    bench.clock.advance(100_000)
    plan = plan_of("a b", heartbeat_ms=2_000, schedule_to_start_ms=2_000)
    await bench.submit(plan)
    (a,) = await bench.take(1)
    bench.clock.advance(2_000)
    assert set((await bench.shard.reap(spare_ms=20_000)).results) == {a.task_id, "flow:0:0:b"}


async def test_reaper_does_not_spare_a_wait_past_the_total_time(bench: Bench) -> None:
    await bench.submit(plan_of("a", total_ms=60_000))
    bench.clock.advance(60_000)
    assert (await bench.shard.reap(spare_ms=30_000)).results == ("flow:0:0:a",)
