"""A run whose plan the store has lost ends as soon as it would go on, and costs no other run anything."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from tests.stores.node_task_manager.shards import RUN, Bench, completed, held, plan_of
from tests.stores.node_task_manager.test_fan_out import begun, joined, offered, split
from tests.stores.node_task_manager.test_fan_out import plan as mapping
from tests.stores.node_task_manager.test_reruns import first_run, rerun_of, run_all
from tests.stores.node_task_manager.test_sub_flows import BEGUN, COMPLETED, FAILED, reported_children
from tests.stores.node_task_manager.test_sub_flows import PLAN as RUNS_ANOTHER
from tests.stores.node_task_manager.wards import Ward
from tradewind.node_task_manager.domain.component import ComponentStatus, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.waiting import Signal, Wait
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind, Postponed

PLAN = plan_of("a.out>b.in a.out>c.in", digest="lost")
RETRIED = plan_of("a.out>b.in", digest="retried", retry=RetryPolicy(3, initial_ms=1, jitter=0))
TIMED = plan_of("a", digest="timed", schedule_to_start_ms=1000, start_to_close_ms=1000)
LARGE = plan_of(" ".join(f"n{at}" for at in range(1200)), digest="large")
HEALTHY = plan_of("x.out>y.in", digest="healthy")
REASON = "the store has lost the plan of this run"
MINUTE = 60_000
Step = Callable[[], Awaitable[object]]
Begin = Callable[[Bench], Awaitable[Step]]


async def lose(ward: Ward, digest: str) -> None:
    """Remove a plan, and what the store's functions remember of it."""
    await ward.do("DEL", f"plan:{digest}")
    for node in ward.server.nodes:
        await ward.server.on_node(node, "FUNCTION", "FLUSH")


async def taken(bench: Bench, plan: Plan) -> Assignment:
    await bench.submit(plan)
    return (await bench.take(1))[0]


def ended(given: Assignment, kind: OutcomeKind, wait: Wait | None = None) -> Outcome:
    error = TaskError("NODE_ERROR", "broke") if kind is OutcomeKind.FAILED else None
    return Outcome(given.task_id, given.attempt, given.nonce, kind, (), error, wait=wait)


async def completes(bench: Bench) -> Step:
    given = await taken(bench, PLAN)
    return lambda: bench.shard.complete([completed(given)])


async def fails(bench: Bench) -> Step:
    given = await taken(bench, RETRIED)
    return lambda: bench.shard.complete([ended(given, OutcomeKind.FAILED)])


async def is_suspended(bench: Bench) -> Step:
    given = await taken(bench, PLAN)
    return lambda: bench.shard.complete([ended(given, OutcomeKind.SUSPENDED, Wait("go"))])


async def completes_eagerly(bench: Bench) -> Step:
    given = await taken(bench, PLAN)
    eager = Outcome(RUN.task_id("b"), 1, "own", OutcomeKind.COMPLETED, eager="w1")
    return lambda: bench.shard.complete([completed(given), eager])


async def is_claimed(bench: Bench) -> Step:
    await bench.submit(PLAN)
    return bench.take


async def is_queued_again(bench: Bench) -> Step:
    given = await taken(bench, PLAN)
    return lambda: bench.shard.give_back("w1", 0, held(given))


async def lost_its_worker_too_often(bench: Bench) -> Step:
    for _ in range(2):
        await taken(bench, PLAN)
        await bench.shard.give_back("w1", 0, None)
    await bench.take(1)
    return lambda: bench.shard.give_back("w1", 0, None)


async def is_tried_again(bench: Bench) -> Step:
    given = await taken(bench, RETRIED)
    await bench.shard.complete([ended(given, OutcomeKind.FAILED)])
    bench.clock.advance(MINUTE)
    return bench.shard.claim


async def is_postponed(bench: Bench) -> Step:
    given = await taken(bench, PLAN)
    return lambda: bench.shard.postpone([Postponed(given.task_id, given.nonce, 1)])


async def takes_too_long(bench: Bench) -> Step:
    await taken(bench, TIMED)
    bench.clock.advance(MINUTE)
    return bench.shard.reap


async def waits_too_long(bench: Bench) -> Step:
    await bench.submit(TIMED)
    bench.clock.advance(MINUTE)
    return bench.shard.reap


async def is_resumed(bench: Bench) -> Step:
    given = await taken(bench, PLAN)
    await bench.shard.complete([ended(given, OutcomeKind.SUSPENDED, Wait("go"))])
    return lambda: bench.shard.signal(Signal(given.task_id, "0", "go", "1", "ann", "", 1, ""))


async def hears_of_another_cycle(bench: Bench) -> Step:
    await bench.submit(RUNS_ANOTHER)
    return lambda: bench.shard.report_sub_flows([COMPLETED])


async def hears_of_a_failed_cycle(bench: Bench) -> Step:
    await bench.submit(RUNS_ANOTHER)
    return lambda: bench.shard.report_sub_flows([FAILED])


async def has_a_node_terminated(bench: Bench) -> Step:
    await taken(bench, PLAN)
    return lambda: bench.shard.terminate(RUN.task_id("b"), "0", 1, "enough", "ann")


async def is_split(bench: Bench) -> Step:
    offer = await offered(bench, mapping())
    return lambda: bench.shard.fan_out([split(offer, 3)])


async def is_joined(bench: Bench) -> Step:
    effects = await begun(bench, mapping(), 1)
    (item,) = await bench.take()
    effects = await bench.shard.complete([completed(item)])
    return lambda: bench.shard.fan_out([joined(effects.fan_outs[0])])


async def completes_an_item(bench: Bench) -> Step:
    await begun(bench, mapping(1), 3)
    (item,) = await bench.take()
    return lambda: bench.shard.complete([completed(item)])


async def offers_a_list_again(bench: Bench) -> Step:
    await offered(bench, mapping())
    bench.clock.advance(MINUTE)
    return bench.shard.claim


async def begins_in_several_steps(bench: Bench) -> Step:
    await bench.submit(LARGE)
    return bench.shard.claim


async def takes_over_results(bench: Bench) -> Step:
    await bench.shard.save(LARGE)
    before = first_run(bench, LARGE)
    await run_all(bench, before)
    await bench.shard.submit([structs.replace(rerun_of(before, *range(1199)), run=RUN_AGAIN)])
    return bench.shard.claim


RUN_AGAIN = structs.replace(RUN, run=1)
CASES: list[tuple[Begin, str]] = [
    *((begin, PLAN.digest) for begin in (completes, is_suspended, completes_eagerly, is_claimed, is_queued_again)),
    *((begin, PLAN.digest) for begin in (lost_its_worker_too_often, is_postponed, is_resumed, has_a_node_terminated)),
    *((begin, RETRIED.digest) for begin in (fails, is_tried_again)),
    *((begin, TIMED.digest) for begin in (takes_too_long, waits_too_long)),
    *((begin, RUNS_ANOTHER.digest) for begin in (hears_of_another_cycle, hears_of_a_failed_cycle)),
    *((begin, mapping().digest) for begin in (is_split, is_joined, offers_a_list_again)),
    (completes_an_item, mapping(1).digest),
    *((begin, LARGE.digest) for begin in (begins_in_several_steps, takes_over_results)),
]


async def check_ended(ward: Ward, run: RunName) -> None:
    """The run has ended, says why, and keeps no other from beginning, going on and ending."""
    while (await ward.shard.claim()).todo:
        pass
    (component,) = await ward.shard.components([(run, "0")])
    assert component is not None
    assert (component.status, component.open) == (ComponentStatus.FINISHED, 0)
    assert component.stop is not None
    assert (component.stop.by, component.stop.reason) == ("system", REASON)
    assert await ward.submit(HEALTHY, flow_id="healthy", run_id="h") == "accepted"
    for node in ("x", "y"):
        given = [each for each in await ward.take() if each.task_id.startswith("healthy:")]
        assert [each.task_id for each in given] == [f"healthy:0:0:{node}"]
        assert await ward.complete(given[0], out="1") == ""
    assert await ward.take(100, "w9") == []
    assert await ward.found() == []


@pytest.mark.parametrize(("begin", "digest"), CASES, ids=[begin.__name__ for begin, _ in CASES])
async def test_run_without_plan_ends_with_a_reason_when_it_would_go_on(ward: Ward, begin: Begin, digest: str) -> None:
    go_on = await begin(ward)
    await lose(ward, digest)
    await go_on()
    await check_ended(ward, RUN_AGAIN if begin is takes_over_results else RUN)


async def completes_late(bench: Bench, given: Assignment) -> None:
    assert (await bench.shard.complete([completed(given)])).results == (REASON,)


async def lapses(bench: Bench, _given: Assignment) -> None:
    bench.clock.advance(MINUTE)
    await bench.shard.reap()


@pytest.mark.parametrize("go_on", [completes_late, lapses])
async def test_run_that_is_being_stopped_ends_without_its_plan(
    ward: Ward, go_on: Callable[[Bench, Assignment], Awaitable[None]]
) -> None:
    """The stop has reached every node already, and waits for the one that runs."""
    given = await taken(ward, PLAN)
    await ward.shard.stop(RUN, "r0", "", "enough", "ann", 1000)
    await lose(ward, PLAN.digest)
    await go_on(ward, given)
    (component,) = await ward.shard.components([(RUN, "0")])
    assert component is not None
    assert (component.status, component.terminated, component.skipped) == (ComponentStatus.FINISHED, 1, 2)
    assert component.stop is not None
    assert component.stop.reason == "enough"
    assert await ward.found() == []


async def test_run_ends_when_the_store_loses_a_node_that_has_to_follow(ward: Ward) -> None:
    """The functions still know the node before."""
    given = await taken(ward, PLAN)
    await ward.do("DEL", f"plan:{PLAN.digest}")
    await ward.complete(given, out="1")
    await check_ended(ward, RUN)


async def test_run_whose_plan_is_replaced_by_another_type_ends(ward: Ward) -> None:
    given = await taken(ward, PLAN)
    await lose(ward, PLAN.digest)
    await ward.do("SET", f"plan:{PLAN.digest}", "broken")
    assert await ward.complete(given, out="1") == REASON
    await check_ended(ward, RUN)


async def test_outcomes_of_other_runs_count_beside_one_whose_plan_is_lost(ward: Ward) -> None:
    lost = await taken(ward, PLAN)
    await ward.submit(HEALTHY, flow_id="healthy", run_id="h")
    (healthy,) = await ward.take(1)
    await lose(ward, PLAN.digest)
    assert (await ward.shard.complete([completed(lost), completed(healthy)])).results == (REASON, "")
    assert [each.task_id for each in await ward.take()] == ["healthy:0:0:y"]
    assert await ward.found() == []


async def test_others_are_given_out_beside_a_run_whose_plan_is_lost(ward: Ward) -> None:
    await ward.submit(PLAN)
    await ward.submit(HEALTHY, flow_id="healthy", run_id="h")
    await lose(ward, PLAN.digest)
    assert [each.task_id for each in await ward.take()] == ["healthy:0:0:x"]


async def test_plan_of_another_type_is_unknown_and_saving_it_replaces_it(ward: Ward) -> None:
    key = f"plan:{PLAN.digest}"
    await ward.do("SET", key, "broken")
    assert await ward.redis.load(PLAN.digest) is None
    run = RunSubmission(RUN, "r0", "default", (("0", PLAN.digest),), 3, begun_ms=ward.clock())
    (refused,) = (await ward.shard.submit([run])).results
    assert (refused.outcome, refused.unknown_plans) == ("plan_unknown", (PLAN.digest,))
    assert await ward.submit(PLAN) == "accepted"
    assert len(await ward.take()) == 1
    assert await ward.redis.load(PLAN.digest) == PLAN


async def test_cycle_that_a_run_without_plan_waits_for_is_no_longer_needed(ward: Ward) -> None:
    await ward.submit(RUNS_ANOTHER)
    await ward.shard.report_sub_flows([BEGUN])
    await lose(ward, RUNS_ANOTHER.digest)
    await ward.shard.stop(RUN, "r0", "", "enough", "ann", 1000)
    assert await reported_children(ward) == ["", "b:4:0"]
