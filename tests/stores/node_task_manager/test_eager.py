"""Attempts that a worker begins by itself on what its own previous node emitted, for every store."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.stores.node_task_manager.shards import RUN, Bench, held, only_component, plan_of
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.events import ComponentEvent
from tradewind.node_task_manager.ports.reading import Line
from tradewind.node_task_manager.ports.work import Assignment, Effects, Outcome, OutcomeKind, Vacancy, in_pieces

BEGUN, COMPLETED, FAILED = OutcomeKind.BEGUN, OutcomeKind.COMPLETED, OutcomeKind.FAILED


def ended(given: Assignment, **outputs: str) -> Outcome:
    return Outcome(given.task_id, given.attempt, given.nonce, COMPLETED, tuple(outputs.items()))


def eager(node_id: str, kind: OutcomeKind = COMPLETED, /, nonce: str = "", **outputs: str) -> Outcome:
    error = TaskError("NODE_ERROR", "it broke") if kind is FAILED else None
    return Outcome(RUN.task_id(node_id), 1, nonce or f"own-{node_id}", kind, tuple(outputs.items()), error, eager="w1")


async def begin(bench: Bench, plan: Plan) -> Assignment:
    await bench.submit(plan)
    (first,) = await bench.take()
    return first


async def complete(bench: Bench, *outcomes: Outcome, vacancies: int = 0) -> Effects:
    return await bench.shard.complete(outcomes, [Vacancy("w2", 0, vacancies, ("noop",))] if vacancies else ())


async def record(bench: Bench, node_id: str) -> NodeTask:
    (task,) = await bench.shard.tasks([RUN.task_id(node_id)], inputs=True, outputs=True)
    assert task is not None
    return task


async def test_eager_chain_completes_in_one_call_without_assignments(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c"))
    effects = await complete(bench, ended(a, out="1"), eager("b", out="2"), eager("c", out="3"), vacancies=5)
    assert effects.results == ("", "", "")
    assert not effects.assignments
    assert not effects.ready_types
    b = await record(bench, "b")
    assert (b.status, b.attempt, b.nonce, b.worker_id) == ("completed", 1, "own-b", "w1")
    assert (b.inputs, b.outputs) == (((0, "1"),), (("out", "2"),))
    assert (await only_component(bench)).open == 0
    (event,) = await bench.shard.read({3: "0"}, 10)
    assert isinstance(event, ComponentEvent)
    assert (event.completed, event.outputs) == (3, (("out", "3"),))
    assert await bench.shard.held_by("w1") == []


async def test_eager_attempt_that_still_runs_is_leased_to_its_worker(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c"))
    effects = await complete(bench, ended(a, out="1"), eager("b", BEGUN), vacancies=5)
    assert (effects.results, effects.assignments) == (("", ""), ())
    assert (await record(bench, "b")).status == "running"
    assert await bench.shard.held_by("w1") == [RUN.task_id("b")]
    b = Assignment("w1", RUN.task_id("b"), "own-b", 1, "0", "", 1, "r0", "default")
    assert (await bench.shard.renew("w1", 0, held(b))).lost == ()
    assert await bench.complete(b, out="2") == ""
    assert (await record(bench, "c")).status == "pending"


async def test_eager_attempt_of_a_lost_worker_runs_elsewhere_and_its_report_is_refused(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c"))
    await complete(bench, ended(a, out="1"), eager("b", BEGUN))
    bench.clock.advance(Limits().lease_ms + 1)
    await bench.shard.reap()
    (b,) = await bench.take(1, "w2")
    assert (b.task_id, b.attempt, b.inputs) == (RUN.task_id("b"), 2, ((0, "1"),))
    late = Assignment("w1", RUN.task_id("b"), "own-b", 1, "0", "", 1, "r0", "default")
    assert "the lease lapsed" in await bench.complete(late, out="2")
    assert (await record(bench, "b")).status == "running"


async def test_repeated_eager_outcomes_are_accepted(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c c>d"))
    first = (ended(a, out="1"), eager("b", BEGUN))
    again = (ended(a, out="1"), eager("b", out="2"), eager("c", BEGUN))
    for outcomes in (first, first, again, again):
        assert not any((await complete(bench, *outcomes)).results)
    statuses = [(await record(bench, node_id)).status for node_id in "abc"]
    assert statuses == ["completed", "completed", "running"]
    assert await bench.shard.held_by("w1") == [RUN.task_id("c")]


async def test_eager_outcomes_after_a_refused_outcome_are_refused(bench: Bench) -> None:
    plan = plan_of("a>b b>c")
    a = await begin(bench, plan)
    late = structs.replace(a, nonce="older")
    results = (await complete(bench, ended(late, out="9"), eager("b", out="9"), eager("c", BEGUN))).results
    assert "the lease lapsed" in results[0]
    assert set(results[1:]) == {f"the outcome it was begun on was refused: {results[0]}"}
    assert await bench.statuses(plan) == {"a": "running", "b": "-", "c": "-"}


async def test_eager_attempt_of_a_node_task_claimed_elsewhere_is_refused(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    await complete(bench, ended(a, out="1"))
    await bench.take(1, "w2")
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results
    assert refused == "the node task is running"
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", out="2"))).results
    assert "the lease lapsed" in refused


async def test_queued_node_task_may_begin_eagerly(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    await complete(bench, ended(a, out="1"))
    bench.clock.advance(5)
    assert (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results == ("", "")
    assert await bench.take() == []


@pytest.mark.parametrize(
    ("text", "node_id", "reason"),
    [
        ("a>b a>d b>d", "d", "the lease lapsed"),
        ("a>b a>c c>d", "d", "no such node task"),
        ("a.x>b", "b", "the node task is skipped"),
        ("a>b z", "z", "it does not follow the node task that was reported before it"),
    ],
)
async def test_only_the_ready_successor_of_the_previous_node_may_begin_eagerly(
    bench: Bench, text: str, node_id: str, reason: str
) -> None:
    await bench.submit(plan_of(text))
    (a,) = await bench.take(1)
    (_, refused) = (await complete(bench, ended(a, out="1"), eager(node_id, out="3"))).results
    assert refused.startswith(reason)


async def test_outcome_of_another_run_or_component_begins_nothing_eagerly(bench: Bench) -> None:
    plans = [plan_of("a>b"), plan_of("x>y")]
    for plan in plans:
        await bench.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    runs = [RunSubmission(RunName("flow", cycle, 0), f"r{cycle}", "default", parts, 3) for cycle in range(2)]
    await bench.shard.submit(runs)
    given = {each.task_id: each for each in await bench.take()}
    await complete(bench, *(ended(each, out="1") for each in given.values()))
    for source, target in (("flow:1:0:a", "flow:0:0:b"), ("flow:0:0:x", "flow:0:0:b"), ("flow:0:0:a", "flow:0:0:y")):
        other = structs.replace(eager("b", BEGUN), task_id=target)
        (_, refused) = (await complete(bench, ended(given[source], out="1"), other)).results
        assert refused == "it does not follow the node task that was reported before it"


async def test_node_task_that_had_an_attempt_may_not_begin_eagerly(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], retry=RetryPolicy(2, initial_ms=10, jitter=0.0))))
    a = await begin(bench, plan)
    await complete(bench, ended(a, out="1"), eager("b", FAILED))
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", nonce="second", out="2"))).results
    assert "the lease lapsed" in refused
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN, nonce="third"))).results
    assert refused == "the node task is pending"
    assert ((await record(bench, "b")).attempt, await bench.shard.held_by("w1")) == (1, [])


async def test_queued_node_task_begins_eagerly_while_another_of_its_type_becomes_ready(bench: Bench) -> None:
    await bench.submit(plan_of("a>b c>d"))
    a, c = await bench.take()
    await complete(bench, ended(a, out="1"))
    outcomes = (ended(c, out="1"), ended(a, out="1"), eager("b", BEGUN))
    assert (await complete(bench, *outcomes)).results == ("", "", "")
    assert [each.task_id for each in await bench.take()] == [RUN.task_id("d")]


async def test_node_without_an_input_value_may_not_begin_eagerly(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b", policy=FailurePolicy.CONTINUE))
    error = TaskError("INVALID_OUTPUT", "not JSON")
    failed = Outcome(a.task_id, a.attempt, a.nonce, FAILED, (), error)
    (_, refused) = (await complete(bench, failed, eager("b", out="2"))).results
    assert refused == "it does not follow the node task that was reported before it"
    assert [each.inputs for each in await bench.take()] == [()]


async def test_eager_attempt_under_a_concurrency_key_is_refused(bench: Bench) -> None:
    plan = plan_of("a>b", concurrency=Concurrency("desk", 5))
    a = await begin(bench, plan)
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", out="2"))).results
    assert refused == "limits are set, so it has to wait for its turn"
    assert [each.task_id for each in await bench.take()] == [RUN.task_id("b")]


async def test_eager_attempt_under_system_limits_is_refused(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    bench.shard.configure(SystemConfig(max_running=10, version=1))
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results
    assert refused == "limits are set, so it has to wait for its turn"


async def test_failed_eager_attempt_is_retried_by_its_policy(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], retry=RetryPolicy(2, initial_ms=10, jitter=0.0))))
    a = await begin(bench, plan)
    assert (await complete(bench, ended(a, out="1"), eager("b", FAILED))).results == ("", "")
    b = await record(bench, "b")
    assert (b.status, b.attempt, b.failures) == ("pending", 1, 1)
    bench.clock.advance(11)
    (again,) = await bench.take(1, "w2")
    assert (again.attempt, again.inputs) == (2, ((0, "1"),))


async def test_stopped_run_begins_no_eager_attempts(bench: Bench) -> None:
    plan = plan_of("a>b")
    a = await begin(bench, plan)
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 10**9)
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results
    assert refused == "the node task is skipped"
    assert await bench.statuses(plan) == {"a": "completed", "b": "skipped"}


async def test_eager_attempt_has_the_timeout_of_its_node(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], start_to_close_ms=2_000)))
    a = await begin(bench, plan)
    await complete(bench, ended(a, out="1"), eager("b", BEGUN))
    bench.clock.advance(2_000 + Limits().stop_grace_ms + 1)
    await bench.shard.reap()
    b = await record(bench, "b")
    assert b.error is not None
    assert (b.status, b.error.code) == ("failed", "TIMEOUT")


def test_pieces_keep_eager_outcomes_with_their_source() -> None:
    outcomes = [eager(str(at)) if at % 3 else ended_alone(at) for at in range(8)]
    assert [len(piece) for piece in in_pieces(outcomes, 2)] == [3, 3, 2]
    assert [len(piece) for piece in in_pieces(outcomes, 4)] == [6, 2]
    assert [*in_pieces([], 2)] == [[]]


def ended_alone(at: int) -> Outcome:
    return Outcome(RUN.task_id(str(at)), 1, "n", COMPLETED)


async def test_eager_attempt_is_leased_though_the_store_lost_the_claim_before_it(bench: Bench) -> None:
    await bench.submit(plan_of("a>b"))
    a = Assignment("w1", RUN.task_id("a"), "r0-forgotten", 1, "0", "", 0, "r0", "default")
    assert (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results == ("", "")
    assert (await record(bench, "b")).worker_id == "w1"
    assert await bench.shard.held_by("w1") == [RUN.task_id("b")]


async def test_log_lines_after_a_failed_eager_attempt_are_kept(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], retry=RetryPolicy(2, initial_ms=10, jitter=0.0))))
    a = await begin(bench, plan)
    await complete(bench, ended(a, out="1"), eager("b", FAILED))
    bench.clock.advance(11)
    await bench.take(1, "w2")
    line = Line(RUN.task_id("b"), 1, "own-b", "INFO", "node", "hello", 5)
    assert await bench.shard.record([], [line, replace(line, nonce="other")]) == 1
    (_, kept) = await bench.shard.lines(RUN, "", 10)
    assert (kept.message, kept.attempt) == ("hello", 1)


async def test_eager_attempt_begun_and_completed_in_one_call_leaves_no_lease(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    again = (ended(a, out="1"), eager("b", BEGUN), ended(a, out="1"), eager("b", out="2"))
    assert not any((await complete(bench, *again)).results)
    assert (await record(bench, "b")).status == "completed"
    assert await bench.shard.held_by("w1") == []
    assert await bench.shard.running(10) == (0, {})


async def test_node_task_stopped_and_completed_in_one_call_leaves_no_lease(bench: Bench) -> None:
    await bench.submit(plan_of("x a>b y", policy=FailurePolicy.FAIL_FAST))
    given = {each.task_id.rpartition(":")[2]: each for each in await bench.take()}
    failed = Outcome(given["x"].task_id, 1, given["x"].nonce, FAILED, (), TaskError("NODE_ERROR", "it broke"))
    await complete(bench, failed, ended(given["a"], out="1"), eager("b", out="2"), ended(given["y"]))
    assert [(await record(bench, node_id)).status for node_id in "aby"] == ["completed", "skipped", "completed"]
    assert await bench.shard.running(10) == (0, {})
