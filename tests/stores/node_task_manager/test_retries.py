"""What the contract says about failed attempts and what follows them, for every store."""

import pytest

from tests.servers import RedisServer
from tests.stores.node_task_manager.raw_keys import BASE
from tests.stores.node_task_manager.shards import Bench, plan_of, task_of
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy, RetryRequest
from tradewind.node_task_manager.ports.work import Assignment, Effects, Held, Outcome, OutcomeKind, Vacancy

TWICE = RetryPolicy(attempts=3, initial_ms=1_000, factor=2, jitter=0)


async def fail(
    bench: Bench,
    assignment: Assignment,
    retry_request: RetryRequest | None = None,
    type: str = "IOError",
    code: str = "NODE_ERROR",
) -> Effects:
    error = TaskError(code, "it broke", type)
    outcome = Outcome(
        assignment.task_id, assignment.attempt, assignment.nonce, OutcomeKind.FAILED, (), error, retry_request
    )
    return await bench.shard.complete([outcome])


async def begun(bench: Bench, retry: RetryPolicy, **options: int) -> Assignment:
    """Submit a flow of one node and return its first attempt."""
    await bench.submit(plan_of("a", retry=retry, **options))  # type: ignore[arg-type]
    (first,) = await bench.take()
    return first


async def test_failed_attempt_is_retried_after_its_delay(bench: Bench) -> None:
    first = await begun(bench, TWICE)
    effects = await fail(bench, first)
    assert (effects.results, effects.due_in) == (("",), 1_000)
    waiting = await task_of(bench)
    assert (waiting.status, waiting.failures, waiting.attempt) == (NodeTaskStatus.PENDING, 1, 1)
    assert waiting.retry_at == bench.clock() + 1_000
    assert waiting.error == TaskError("NODE_ERROR", "it broke", "IOError")
    bench.clock.advance(999)
    assert (await bench.shard.claim()).due_in == 1
    assert await bench.take() == []
    bench.clock.advance(1)
    (second,) = await bench.take()
    assert second.attempt == 2
    assert (await task_of(bench)).retry_at == 0


async def test_caller_learns_when_the_first_of_all_further_attempts_is_due(bench: Bench) -> None:
    await bench.submit(plan_of("a b c", retry=TWICE))
    a, b, c = await bench.take()
    assert (await fail(bench, a, RetryRequest(after_ms=60_000))).due_in == 60_000
    assert (await fail(bench, b)).due_in == 1_000
    assert (await fail(bench, c, RetryRequest(after_ms=5_000))).due_in == 1_000


async def test_a_node_that_fails_twice_and_then_succeeds_is_completed(bench: Bench) -> None:
    attempt = await begun(bench, TWICE)
    for wait in (1_000, 2_000):
        assert (await fail(bench, attempt)).due_in == wait
        bench.clock.advance(wait)
        (attempt,) = await bench.take()
    assert await bench.complete(attempt, out="1") == ""
    done = await task_of(bench)
    assert (done.status, done.failures, done.attempt) == (NodeTaskStatus.COMPLETED, 2, 3)
    assert done.error is not None, "the last failure stays for whoever looks"
    (component,) = await bench.shard.components([(RunName("flow", 0, 0), "0")])
    assert component is not None
    assert (component.completed, component.failed) == (1, 0)


async def test_failure_of_the_last_attempt_fails_the_node_task(bench: Bench) -> None:
    attempt = await begun(bench, RetryPolicy(attempts=2, initial_ms=5, jitter=0))
    await fail(bench, attempt)
    bench.clock.advance(5)
    (attempt,) = await bench.take()
    assert (await fail(bench, attempt)).due_in == -1
    failed = await task_of(bench)
    assert (failed.status, failed.failures) == (NodeTaskStatus.FAILED, 2)
    assert failed.error == TaskError("NODE_ERROR", "it broke", "IOError", final="all 2 attempts failed")


async def test_retry_delays_grow_to_the_maximum_and_jitter_only_shortens_them() -> None:
    policy = RetryPolicy(attempts=9, initial_ms=1_000, factor=3, max_ms=10_000, jitter=0)
    assert [policy.delay_ms("x", failures) for failures in range(1, 5)] == [1_000, 3_000, 9_000, 10_000]
    drawn = [RetryPolicy(9, 1_000, 1, 1_000, jitter=0.5).delay_ms(f"task-{at}", 1) for at in range(500)]
    assert min(drawn) >= 500
    assert max(drawn) <= 1_000
    assert max(drawn) - min(drawn) > 450, "they spread"


async def test_node_may_choose_its_retry_delay_but_not_more_attempts(bench: Bench) -> None:
    attempt = await begun(bench, RetryPolicy(attempts=2, initial_ms=5, jitter=0))
    assert (await fail(bench, attempt, RetryRequest(70_000))).due_in == 70_000
    bench.clock.advance(70_000)
    (attempt,) = await bench.take()
    await fail(bench, attempt, RetryRequest(0))
    assert (await task_of(bench)).status is NodeTaskStatus.FAILED


@pytest.mark.parametrize("retry", [None, RetryPolicy(attempts=1)])
async def test_request_for_an_attempt_that_the_node_does_not_have_is_explained(
    bench: Bench, retry: RetryPolicy | None
) -> None:
    await bench.submit(plan_of("a", retry=retry))
    (only,) = await bench.take()
    await fail(bench, only, RetryRequest(70_000))
    failed = await task_of(bench)
    assert failed.status is NodeTaskStatus.FAILED
    assert failed.error is not None
    assert failed.error.final == 'it asked for another attempt, but may have only one: give it a "retry"'


async def test_stopped_node_task_that_asks_for_another_attempt_is_not_told_of_retries(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    (only,) = await bench.take()
    await bench.shard.stop(RunName("flow", 0, 0), "r0", "", "enough", "ann", 1000)
    await fail(bench, only, RetryRequest(70_000))
    failed = await task_of(bench)
    assert failed.error is not None
    assert failed.error.final == ""


async def test_immediate_retry_is_due_in_one_millisecond(bench: Bench) -> None:
    assert (await fail(bench, await begun(bench, TWICE), RetryRequest(0))).due_in == 1


async def test_a_node_may_ask_for_no_further_attempt(bench: Bench) -> None:
    await fail(bench, await begun(bench, TWICE), RetryRequest(none=True))
    error = (await task_of(bench)).error
    assert error is not None
    assert error.final == "the node asked not to be retried"


@pytest.mark.parametrize("excluded", ["IOError", "NODE_ERROR"], ids=["type", "code"])
async def test_non_retryable_error_fails_the_node_task_at_once(bench: Bench, excluded: str) -> None:
    await fail(bench, await begun(bench, RetryPolicy(3, non_retryable=("KeyError", excluded))))
    failed = await task_of(bench)
    assert (failed.status, failed.failures) == (NodeTaskStatus.FAILED, 1)
    assert failed.error is not None
    assert failed.error.final == f"{excluded} is not retried"


@pytest.mark.parametrize("attempts", [1, 2])
async def test_attempt_that_fails_with_no_further_one_to_come_is_counted(bench: Bench, attempts: int) -> None:
    first = await begun(bench, RetryPolicy(attempts))
    if attempts > 1:
        await bench.shard.terminate(first.task_id, first.component_id, first.index, "enough", "ann")
    await fail(bench, first)
    failed = await task_of(bench)
    assert (failed.status, failed.failures, failed.history) == (NodeTaskStatus.FAILED, 1, ())


async def test_timed_out_attempt_is_retried(bench: Bench) -> None:
    late = await begun(bench, TWICE, start_to_close_ms=5_000)
    bench.clock.advance(15_000)
    assert (await bench.shard.reap()).results == (late.task_id,)
    waiting = await task_of(bench)
    assert (waiting.status, waiting.failures, waiting.lost) == (NodeTaskStatus.PENDING, 1, 0)
    assert waiting.error is not None
    assert waiting.error.code == "TIMEOUT"
    assert (await bench.complete(late)).startswith("the lease lapsed"), "what comes late is refused"


async def test_lost_workers_do_not_count_against_the_attempts(bench: Bench) -> None:
    attempt = await begun(bench, RetryPolicy(attempts=2, initial_ms=5, jitter=0))
    for _ in range(2):
        bench.clock.advance(31_000)
        await bench.shard.reap()
        (attempt,) = await bench.take()
    assert (await fail(bench, attempt)).due_in == 5
    waiting = await task_of(bench)
    assert (waiting.status, waiting.attempt, waiting.failures, waiting.lost) == (NodeTaskStatus.PENDING, 3, 1, 2)


async def test_repeated_failure_report_is_accepted_and_changes_nothing(bench: Bench) -> None:
    first = await begun(bench, TWICE)
    await fail(bench, first)
    assert (await fail(bench, first)).results == ("",)
    assert (await task_of(bench)).failures == 1
    assert (await bench.complete(first)).startswith("the lease lapsed"), "but it has not completed"
    bench.clock.advance(1_000)
    await bench.take()
    assert (await fail(bench, first)).results == ("",)
    renewal = await bench.shard.renew("w1", 0, [Held(first.task_id, first.attempt, first.nonce)])
    assert renewal.lost == ()
    assert (await task_of(bench)).status is NodeTaskStatus.RUNNING


async def test_stop_skips_a_node_task_waiting_for_its_next_attempt(bench: Bench) -> None:
    for cycle, stop in enumerate(("run", "node task")):
        plan = plan_of("a>b", retry=TWICE)
        await bench.submit(plan, cycle=cycle)
        (attempt,) = await bench.take()
        await fail(bench, attempt)
        if stop == "run":
            await bench.shard.stop(RunName("flow", cycle, 0), "r0", "", "enough", "ann", 1_000)
        else:
            await bench.shard.terminate(f"flow:{cycle}:0:a", "0", 0, "enough", "ann")
        assert await bench.statuses(plan, cycle=cycle) == {"a": "skipped", "b": "skipped"}
        bench.clock.advance(10_000)
        assert await bench.take() == []
        assert (await bench.shard.claim()).due_in == -1


async def test_stopping_attempt_that_fails_is_not_retried(bench: Bench) -> None:
    first = await begun(bench, TWICE)
    await bench.shard.terminate(first.task_id, "0", 0, "enough", "ann")
    await fail(bench, first)
    assert (await task_of(bench)).status is NodeTaskStatus.FAILED


async def test_purged_flow_leaves_no_delayed_node_tasks(bench: Bench) -> None:
    await fail(bench, await begun(bench, TWICE))
    await bench.shard.purge("flow")
    bench.clock.advance(10_000)
    assert (await bench.shard.claim()).due_in == -1
    assert await bench.take() == []


async def test_due_retry_goes_to_a_vacancy_in_the_same_call(bench: Bench) -> None:
    await fail(bench, await begun(bench, TWICE))
    bench.clock.advance(1_000)
    effects = await bench.shard.complete([], [Vacancy("w2", 0, 1, ("noop",))])
    assert [assignment.attempt for assignment in effects.assignments] == [2]


async def test_due_retry_without_a_vacancy_is_queued(bench: Bench) -> None:
    await fail(bench, await begun(bench, TWICE))
    bench.clock.advance(1_000)
    assert (await bench.shard.claim()).due_in == -1
    queued = await task_of(bench)
    assert (queued.status, queued.retry_at, queued.ready_at) == (NodeTaskStatus.PENDING, 0, bench.clock())
    assert [each.attempt for each in await bench.take()] == [2]


async def test_each_flow_has_a_budget_of_ten_retries_a_minute(bench: Bench) -> None:
    names = " ".join(f"n{at}" for at in range(14))
    plan = plan_of(names, retry=TWICE)
    await bench.submit(plan)
    for attempt in await bench.take():
        await fail(bench, attempt)
    statuses = list((await bench.statuses(plan)).values())
    assert (statuses.count("pending"), statuses.count("failed")) == (10, 4)
    tasks = await bench.shard.tasks([f"flow:0:0:n{at}" for at in range(14)])
    refused = next(task for task in tasks if task is not None and task.status is NodeTaskStatus.FAILED)
    assert refused.error is not None
    assert refused.error.final == 'RETRY_BUDGET_EXHAUSTED: flow "flow" has used all 10 retries of this minute'

    other = plan_of("a", retry=TWICE)
    await bench.submit(other, flow_id="other")
    bench.clock.advance(500)
    (attempt,) = await bench.take()
    assert (await fail(bench, attempt)).due_in > 0, "each flow has a budget of its own"

    bench.clock.advance(65_000)
    for attempt in await bench.take():
        await fail(bench, attempt)
    statuses = list((await bench.statuses(plan)).values())
    assert (statuses.count("pending"), statuses.count("failed")) == (10, 4), "a minute later there are as many again"


async def test_what_counts_for_a_retry_budget_is_forgotten_afterwards(
    redis_bench: Bench, redis_server: RedisServer
) -> None:
    bench, admin = redis_bench, redis_server.connect()
    await bench.submit(plan_of("a", retry=RetryPolicy(attempts=50)))
    for _ in range(20):
        bench.clock.advance(60_000)
        (attempt,) = await bench.take()
        await fail(bench, attempt)
    kept = [int(name[1:]) * 5_000 for name in await admin.hgetall(f"{BASE}retries:flow")]
    assert min(kept) > bench.clock.now_ms() - 70_000


async def test_retry_budget_grows_to_a_fifth_of_the_attempts_begun(bench: Bench) -> None:
    plan = plan_of(" ".join(f"n{at}" for at in range(100)), retry=TWICE)
    await bench.submit(plan)
    taken = []
    while more := await bench.take():
        taken += more
    assert len(taken) == 100
    for attempt in taken[:30]:
        await fail(bench, attempt)
    statuses = list((await bench.statuses(plan)).values())
    assert (statuses.count("pending"), statuses.count("failed")) == (20, 10)


async def test_batch_has_no_retry_budget(bench: Bench) -> None:
    nodes = tuple(PlanNode(str(at), "noop", retry=TWICE) for at in range(14))
    plan, run = Plan("batch", nodes, ()), RunName.of_batch("b")
    await bench.shard.save(plan)
    await bench.shard.submit(
        [RunSubmission(run, "r0", "default", (("0", plan.digest),), partition=-1, node_type="noop")]
    )
    for attempt in await bench.take():
        assert (await fail(bench, attempt)).due_in > 0


async def test_attempts_after_a_wait_that_the_node_asked_for_are_outside_the_budget(bench: Bench) -> None:
    plan = plan_of(" ".join(f"n{at}" for at in range(34)), retry=TWICE)
    await bench.submit(plan)
    attempts = await bench.take()
    for attempt in attempts[:20]:
        await fail(bench, attempt, RetryRequest(30_000))
    assert list((await bench.statuses(plan)).values()).count("pending") == 20
    for attempt in attempts[20:]:
        await fail(bench, attempt)
    statuses = list((await bench.statuses(plan)).values())
    assert (statuses.count("pending"), statuses.count("failed")) == (30, 4), "they use up none of it either"


async def test_nodes_without_retry_policy_do_not_raise_the_retry_budget(bench: Bench) -> None:
    await bench.submit(plan_of(" ".join(f"n{at}" for at in range(100))))
    while await bench.take():
        pass
    plan = plan_of(" ".join(f"m{at}" for at in range(14)), retry=TWICE)
    await bench.submit(plan, cycle=1)
    for attempt in await bench.take():
        await fail(bench, attempt)
    assert list((await bench.statuses(plan, cycle=1)).values()).count("pending") == 10
