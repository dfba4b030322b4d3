"""What the contract says about errors that no worker reports, and attempts that follow: each is a line of the log."""

from tests.stores.node_task_manager.shards import RUN, Bench, plan_of, task_of
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind


async def logged(bench: Bench) -> list[tuple[str, int, str, str, str]]:
    lines = await bench.shard.lines(RUN, "", 10)
    assert all(line.at == bench.clock() for line in lines[-1:])
    return [(line.node_id, line.attempt, line.level, line.source, line.message) for line in lines]


async def test_silent_attempt_is_logged_although_another_follows(bench: Bench) -> None:
    await bench.submit(plan_of("a", heartbeat_ms=5_000, retry=RetryPolicy(attempts=2, initial_ms=1_000, jitter=0)))
    await bench.take()
    bench.clock.advance(5_000)
    await bench.shard.reap()
    text = "HEARTBEAT_TIMEOUT: attempt 1 sent no heartbeat for 5 s on worker w1"
    follows = "attempt 2 follows in 1 s"
    assert await logged(bench) == [("a", 1, "ERROR", "system", text), ("a", 1, "INFO", "system", follows)]


async def test_each_attempt_that_follows_a_failed_one_is_logged(bench: Bench) -> None:
    await bench.submit(plan_of("a", retry=RetryPolicy(attempts=3, initial_ms=1_500, factor=2, jitter=0)))
    for _ in range(3):
        bench.clock.advance(3_000)
        (attempt,) = await bench.take()
        error = TaskError("NODE_ERROR", "it broke")
        await bench.shard.complete(
            [Outcome(attempt.task_id, attempt.attempt, attempt.nonce, OutcomeKind.FAILED, (), error)]
        )
    texts = [(line.attempt, line.message) for line in await bench.shard.lines(RUN, "", 10)]
    assert texts == [(1, "attempt 2 follows in 1500 ms"), (2, "attempt 3 follows in 3 s")]


async def test_error_that_no_worker_reported_is_logged(bench: Bench) -> None:
    await bench.submit(plan_of("a b"))
    a, b = await bench.take()
    error = TaskError("UNKNOWN_HANDLE", "no output row")
    failed = [
        Outcome(each.task_id, each.attempt, each.nonce, OutcomeKind.FAILED, (), error, unreported=each is a)
        for each in (a, b)
    ]
    await bench.shard.complete(failed)
    assert await logged(bench) == [("a", 1, "ERROR", "system", "UNKNOWN_HANDLE: no output row")]


async def test_wait_for_a_worker_that_took_too_long_is_logged(bench: Bench) -> None:
    await bench.submit(plan_of("a", schedule_to_start_ms=60_000))
    bench.clock.advance(60_000)
    await bench.shard.reap()
    ((_, attempt, level, _, text),) = await logged(bench)
    assert (attempt, level) == (0, "ERROR")
    assert text.startswith("START_TIMEOUT: no worker that offers ")


async def test_each_lost_worker_is_logged(bench: Bench) -> None:
    await bench.submit(plan_of("a", start_to_close_ms=0))
    while (await task_of(bench)).status is not NodeTaskStatus.FAILED:
        await bench.take()
        bench.clock.advance(30_000)
        await bench.shard.reap()
    again = "WORKER_LOST: worker w1 was lost while it ran; it will run again"
    last = "WORKER_LOST: the worker was lost 3 times while it ran; the last one was w1"
    assert await logged(bench) == [
        ("a", attempt, "ERROR", "system", text) for attempt, text in ((1, again), (2, again), (3, last))
    ]
