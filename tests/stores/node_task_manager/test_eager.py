"""Attempts that a worker begins by itself on what its own previous node emitted, for every store."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.stores.node_task_manager.shards import RUN, Bench, held, only_component, plan_of
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.limits import Limits
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


async def test_a_chain_ends_in_one_call_and_nobody_is_given_any_of_it(bench: Bench) -> None:
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


async def test_one_that_goes_on_is_leased_to_the_worker_of_the_one_before(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c"))
    effects = await complete(bench, ended(a, out="1"), eager("b", BEGUN), vacancies=5)
    assert (effects.results, effects.assignments) == (("", ""), ())
    assert (await record(bench, "b")).status == "running"
    assert await bench.shard.held_by("w1") == [RUN.task_id("b")]
    b = Assignment("w1", RUN.task_id("b"), "own-b", 1, "0", "", 1, "r0", "default")
    assert (await bench.shard.renew("w1", 0, held(b))).lost == ()
    assert await bench.complete(b, out="2") == ""
    assert (await record(bench, "c")).status == "pending"


async def test_when_its_worker_is_lost_it_runs_elsewhere_and_what_it_says_late_is_refused(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c"))
    await complete(bench, ended(a, out="1"), eager("b", BEGUN))
    bench.clock.advance(Limits().lease_ms + 1)
    await bench.shard.reap()
    (b,) = await bench.take(1, "w2")
    assert (b.task_id, b.attempt, b.inputs) == (RUN.task_id("b"), 2, ((0, "1"),))
    late = Assignment("w1", RUN.task_id("b"), "own-b", 1, "0", "", 1, "r0", "default")
    assert "the lease lapsed" in await bench.complete(late, out="2")
    assert (await record(bench, "b")).status == "running"


async def test_what_was_said_before_may_be_said_again(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b b>c c>d"))
    first = (ended(a, out="1"), eager("b", BEGUN))
    again = (ended(a, out="1"), eager("b", out="2"), eager("c", BEGUN))
    for outcomes in (first, first, again, again):
        assert not any((await complete(bench, *outcomes)).results)
    statuses = [(await record(bench, node_id)).status for node_id in "abc"]
    assert statuses == ["completed", "completed", "running"]
    assert await bench.shard.held_by("w1") == [RUN.task_id("c")]


async def test_it_does_not_count_when_the_one_before_does_not(bench: Bench) -> None:
    plan = plan_of("a>b b>c")
    a = await begin(bench, plan)
    late = structs.replace(a, nonce="older")
    results = (await complete(bench, ended(late, out="9"), eager("b", out="9"), eager("c", BEGUN))).results
    assert "the lease lapsed" in results[0]
    assert set(results[1:]) == {f"the outcome it was begun on was refused: {results[0]}"}
    assert await bench.statuses(plan) == {"a": "running", "b": "-", "c": "-"}


async def test_one_that_another_worker_got_meanwhile_is_refused(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    await complete(bench, ended(a, out="1"))
    await bench.take(1, "w2")
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results
    assert refused == "the node task is running"
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", out="2"))).results
    assert "the lease lapsed" in refused


async def test_one_that_is_queued_since_may_still_begin(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    await complete(bench, ended(a, out="1"))
    bench.clock.advance(5)
    assert (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results == ("", "")
    assert await bench.take() == []


@pytest.mark.parametrize(
    ("text", "node_id", "why"),
    [
        ("a>b a>d b>d", "d", "the lease lapsed"),
        ("a>b a>c c>d", "d", "no such node task"),
        ("a.x>b", "b", "the node task is skipped"),
        ("a>b z", "z", "it does not follow the node task that was reported before it"),
    ],
)
async def test_only_what_follows_from_the_one_before_may_begin(bench: Bench, text: str, node_id: str, why: str) -> None:
    await bench.submit(plan_of(text))
    (a,) = await bench.take(1)
    (_, refused) = (await complete(bench, ended(a, out="1"), eager(node_id, out="3"))).results
    assert refused.startswith(why)


async def test_one_that_runs_without_a_value_does_not_begin_by_itself(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b", policy=FailurePolicy.CONTINUE))
    error = TaskError("INVALID_OUTPUT", "not JSON")
    failed = Outcome(a.task_id, a.attempt, a.nonce, FAILED, (), error)
    (_, refused) = (await complete(bench, failed, eager("b", out="2"))).results
    assert refused == "it does not follow the node task that was reported before it"
    assert [each.inputs for each in await bench.take()] == [()]


async def test_where_limits_are_set_it_waits_for_its_turn(bench: Bench) -> None:
    plan = plan_of("a>b", concurrency=Concurrency("desk", 5))
    a = await begin(bench, plan)
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", out="2"))).results
    assert refused == "limits are set, so it has to wait for its turn"
    assert [each.task_id for each in await bench.take()] == [RUN.task_id("b")]


async def test_where_the_system_is_bounded_it_waits_for_its_turn(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    bench.shard.configure(SystemConfig(max_running=10, version=1))
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results
    assert refused == "limits are set, so it has to wait for its turn"


async def test_one_that_fails_is_tried_again_by_its_policy(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], retry=RetryPolicy(2, initial_ms=10, jitter=0.0))))
    a = await begin(bench, plan)
    assert (await complete(bench, ended(a, out="1"), eager("b", FAILED))).results == ("", "")
    b = await record(bench, "b")
    assert (b.status, b.attempt, b.failures) == ("pending", 1, 1)
    bench.clock.advance(11)
    (again,) = await bench.take(1, "w2")
    assert (again.attempt, again.inputs) == (2, ((0, "1"),))


async def test_of_a_run_that_is_stopped_nothing_begins(bench: Bench) -> None:
    plan = plan_of("a>b")
    a = await begin(bench, plan)
    await bench.shard.stop(RUN, "r0", "", "enough", "ann", 10**9)
    (_, refused) = (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results
    assert refused == "the node task is skipped"
    assert await bench.statuses(plan) == {"a": "completed", "b": "skipped"}


async def test_its_times_are_those_of_its_node(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], start_to_close_ms=2_000)))
    a = await begin(bench, plan)
    await complete(bench, ended(a, out="1"), eager("b", BEGUN))
    bench.clock.advance(2_000 + Limits().stop_grace_ms + 1)
    await bench.shard.reap()
    b = await record(bench, "b")
    assert b.error is not None
    assert (b.status, b.error.code) == ("failed", "TIMEOUT")


def test_pieces_keep_what_belongs_together() -> None:
    outcomes = [eager(str(at)) if at % 3 else ended_alone(at) for at in range(8)]
    assert [len(piece) for piece in in_pieces(outcomes, 2)] == [3, 3, 2]
    assert [len(piece) for piece in in_pieces(outcomes, 4)] == [6, 2]
    assert [*in_pieces([], 2)] == [[]]


def ended_alone(at: int) -> Outcome:
    return Outcome(RUN.task_id(str(at)), 1, "n", COMPLETED)


async def test_after_a_store_lost_that_the_one_before_was_given_out_it_is_leased_to_who_says_so(bench: Bench) -> None:
    await bench.submit(plan_of("a>b"))
    a = Assignment("w1", RUN.task_id("a"), "forgotten", 1, "0", "", 0, "r0", "default")
    assert (await complete(bench, ended(a, out="1"), eager("b", BEGUN))).results == ("", "")
    assert (await record(bench, "b")).worker_id == "w1"
    assert await bench.shard.held_by("w1") == [RUN.task_id("b")]


async def test_lines_that_come_after_it_failed_are_kept(bench: Bench) -> None:
    plan = plan_of("a>b")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], retry=RetryPolicy(2, initial_ms=10, jitter=0.0))))
    a = await begin(bench, plan)
    await complete(bench, ended(a, out="1"), eager("b", FAILED))
    bench.clock.advance(11)
    await bench.take(1, "w2")
    line = Line(RUN.task_id("b"), 1, "own-b", "INFO", "node", "hello", 5)
    assert await bench.shard.record([], [line, replace(line, nonce="other")]) == 1
    (kept,) = await bench.shard.lines("flow", 0, "", 10)
    assert (kept.message, kept.attempt) == ("hello", 1)


async def test_one_that_is_begun_and_ends_in_one_call_is_held_by_nobody(bench: Bench) -> None:
    a = await begin(bench, plan_of("a>b"))
    again = (ended(a, out="1"), eager("b", BEGUN), ended(a, out="1"), eager("b", out="2"))
    assert not any((await complete(bench, *again)).results)
    assert (await record(bench, "b")).status == "completed"
    assert await bench.shard.held_by("w1") == []
    assert await bench.shard.running(10) == (0, [])


async def test_one_that_is_to_stop_for_another_and_ends_in_one_call_is_held_by_nobody(bench: Bench) -> None:
    await bench.submit(plan_of("x a>b y", policy=FailurePolicy.FAIL_FAST))
    given = {each.task_id.rpartition(":")[2]: each for each in await bench.take()}
    failed = Outcome(given["x"].task_id, 1, given["x"].nonce, FAILED, (), TaskError("NODE_ERROR", "it broke"))
    await complete(bench, failed, ended(given["a"], out="1"), eager("b", out="2"), ended(given["y"]))
    assert [(await record(bench, node_id)).status for node_id in "aby"] == ["completed", "skipped", "completed"]
    assert await bench.shard.running(10) == (0, [])
