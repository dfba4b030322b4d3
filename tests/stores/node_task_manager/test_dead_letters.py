"""What the contract says about node tasks that are given up, for every store."""

from dataclasses import replace

import pytest

from tests.stores.node_task_manager.shards import Bench, plan_of
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, PastAttempt, TaskError
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.domain.retry import RetryPolicy, RetryRequest
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind

TWICE = RetryPolicy(attempts=2, initial_ms=1_000, jitter=0)


async def node_task(bench: Bench, task_id: str = "flow:0:0:a") -> NodeTask:
    (task,) = await bench.shard.tasks([task_id])
    assert task is not None
    return task


async def fail(bench: Bench, attempt: Assignment, retry_request: RetryRequest | None = None) -> None:
    error = TaskError("NODE_ERROR", "broke")
    outcome = Outcome(attempt.task_id, attempt.attempt, attempt.nonce, OutcomeKind.FAILED, (), error, retry_request)
    await bench.shard.complete([outcome])


async def letters(bench: Bench, user_id: str = "default") -> list[str]:
    return [task_id for _, task_id in await bench.shard.dead_letters(user_id, None, 100)]


async def test_node_task_that_lost_its_worker_three_times_becomes_a_dead_letter(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    expected = []
    for number in range(1, 4):
        assert await letters(bench) == []
        (attempt,) = await bench.take(1, f"w{number}")
        began = bench.clock()
        bench.clock.advance(31_000)
        await bench.shard.reap()
        expected.append(PastAttempt(attempt.attempt, f"w{number}", began, bench.clock(), "WORKER_LOST"))
    dead = await node_task(bench)
    assert dead.error is not None
    assert (dead.status, dead.error.code) == (NodeTaskStatus.FAILED, "WORKER_LOST")
    assert dead.history == tuple(expected)
    assert await bench.shard.dead_letters("default", None, 10) == [(bench.clock(), "flow:0:0:a")]
    assert await letters(bench, "other") == []


async def test_node_task_whose_attempts_all_failed_becomes_a_dead_letter(bench: Bench) -> None:
    await bench.submit(plan_of("a", retry=TWICE))
    for wait in (1_000, 0):
        (attempt,) = await bench.take()
        await fail(bench, attempt)
        bench.clock.advance(wait)
    assert await letters(bench) == ["flow:0:0:a"]
    assert [(past.attempt, past.how) for past in (await node_task(bench)).history] == [
        (1, "NODE_ERROR"),
        (2, "NODE_ERROR"),
    ]


async def test_node_task_that_declines_a_retry_becomes_a_dead_letter(bench: Bench) -> None:
    await bench.submit(plan_of("a", retry=TWICE))
    (attempt,) = await bench.take()
    await fail(bench, attempt, RetryRequest(none=True))
    assert await letters(bench) == ["flow:0:0:a"]


@pytest.mark.parametrize(
    ("total_ms", "wait", "code"),
    [(0, None, "START_TIMEOUT"), (1_000, None, "TOTAL_TIMEOUT"), (1_000, Wait(flow_id="b"), "TOTAL_TIMEOUT")],
)
async def test_node_task_that_a_clock_ends_while_it_waits_becomes_a_dead_letter(
    bench: Bench, total_ms: int, wait: Wait | None, code: str
) -> None:
    plan = plan_of("a", schedule_to_start_ms=1_000, total_ms=total_ms, wait=wait)
    (once,) = plan.nodes
    await bench.submit(Plan("twice", (replace(once, retry=TWICE),), ()))
    await bench.submit(plan, cycle=1)
    bench.clock.advance(1_001)
    await bench.shard.reap()
    errors = [(await node_task(bench, task_id)).error for task_id in ("flow:0:0:a", "flow:1:0:a")]
    assert [error and (error.code, error.final) for error in errors] == [(code, f"{code} is not retried"), (code, "")]
    assert await letters(bench) == ["flow:0:0:a"], "without a retry policy it is none"


async def test_failure_without_retry_policy_and_late_success_are_no_dead_letters(bench: Bench) -> None:
    await bench.submit(plan_of("a"))
    (attempt,) = await bench.take()
    await fail(bench, attempt)
    await bench.submit(plan_of("a", retry=TWICE, digest="twice"), cycle=1)
    (attempt,) = await bench.take()
    await fail(bench, attempt)
    bench.clock.advance(1_000)
    (attempt,) = await bench.take()
    await bench.complete(attempt)
    assert await letters(bench) == []
    assert len((await node_task(bench, "flow:1:0:a")).history) == 1, "what failed before stays to be seen"


async def test_dead_letters_are_listed_newest_first_in_pages(bench: Bench) -> None:
    names = [f"n{at}" for at in range(5)]
    await bench.submit(plan_of(" ".join(names), retry=TWICE))
    for attempt in await bench.take():
        await fail(bench, attempt, RetryRequest(none=True))
        bench.clock.advance(attempt.index % 2)
    found: list[tuple[int, str]] = []
    while page := await bench.shard.dead_letters("default", found[-1] if found else None, 2):
        assert len(page) <= 2
        found += page
    assert sorted(task_id for _, task_id in found) == [f"flow:0:0:{name}" for name in names]
    assert found == sorted(found, reverse=True)


async def test_dead_letter_is_unlisted_by_hand_and_with_its_flow(bench: Bench) -> None:
    await bench.submit(plan_of("a b", retry=TWICE))
    for attempt in await bench.take():
        await fail(bench, attempt, RetryRequest(none=True))
    await bench.shard.unlist_dead_letter("default", "flow:0:0:b")
    await bench.shard.unlist_dead_letter("default", "flow:0:0:b")
    assert await letters(bench) == ["flow:0:0:a"]
    await bench.shard.purge("flow")
    assert await letters(bench) == []


async def test_history_holds_the_latest_twenty_attempts(bench: Bench) -> None:
    policy = RetryPolicy(attempts=1000, initial_ms=10_000, factor=1, jitter=0)
    await bench.submit(plan_of("a", retry=policy))
    for _ in range(23):
        (attempt,) = await bench.take()
        await fail(bench, attempt)
        bench.clock.advance(10_000)
    assert [past.attempt for past in (await node_task(bench)).history] == list(range(4, 24))
