"""What happens to runs and node tasks, and who gets them: the contract of the node task store, for every store."""

from msgspec import structs

from tests.servers import RedisServer
from tests.stores.node_task_manager.shards import LIMITS, RUN, Bench, memory_shard, only_component, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import ComponentStatus, Release, RunSubmission
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import FailurePolicy, Plan, PlanNode, RunIf
from tradewind.node_task_manager.ports.events import ComponentEvent
from tradewind.node_task_manager.ports.node_tasks import Purge
from tradewind.node_task_manager.ports.work import Assignment, Effects, Outcome, OutcomeKind, Vacancy
from tradewind.server.clock import ManualClock


def failed(assignment: Assignment) -> Outcome:
    error = TaskError("NODE_ERROR", "it broke", "ValueError", "line 1")
    return Outcome(assignment.task_id, assignment.attempt, assignment.nonce, OutcomeKind.FAILED, (), error)


async def test_chain_runs_in_order_and_passes_values_along_its_edges(bench: Bench) -> None:
    plan = plan_of("a.x>b.y b.x>c.y")
    assert await bench.submit(plan) == "accepted"
    for name, inputs in (("a", ()), ("b", ((0, "1"),)), ("c", ((1, "2"),))):
        (assignment,) = await bench.take()
        assert assignment.task_id == f"flow:0:0:{name}"
        assert assignment.inputs == inputs
        assert await bench.complete(assignment, x=str(len(inputs) + 1 if name != "b" else 2)) == ""
    component = await only_component(bench)
    assert component.status is ComponentStatus.FINISHED
    assert (component.completed, component.sinks_completed, component.open) == (3, 1, 0)
    (event,) = await bench.shard.read({3: "0"}, 10)
    assert isinstance(event, ComponentEvent)
    assert (event.run, event.run_id, event.component, event.completed) == ("flow:0:0", "r0", "0", 3)
    await bench.shard.acknowledge({3: event.event_id})
    assert await bench.shard.read({3: "0"}, 10) == []


async def test_node_waits_for_all_its_edges_and_gets_values_in_plan_order(bench: Bench) -> None:
    plan = plan_of("a>d b>d c>d")
    await bench.submit(plan)
    taken = await bench.take()
    assert [a.task_id[-1] for a in taken] == ["a", "b", "c"]
    for assignment, value in zip(reversed(taken), ("3", "2", "1"), strict=True):
        assert await bench.take() == []
        await bench.complete(assignment, out=value)
    (join,) = await bench.take()
    assert join.inputs == ((0, "1"), (1, "2"), (2, "3"))


async def test_handle_that_was_not_emitted_skips_its_successors(bench: Bench) -> None:
    plan = plan_of("choose.buy>buy choose.sell>sell sell>report")
    await bench.submit(plan)
    (choose,) = await bench.take()
    await bench.complete(choose, buy="true")
    assert await bench.statuses(plan) == {
        "choose": "completed",
        "buy": "pending",
        "sell": "skipped",
        "report": "skipped",
    }
    (sell, report) = await bench.shard.tasks(["flow:0:0:sell", "flow:0:0:report"])
    assert sell is not None
    assert sell.reason == 'node "choose" did not emit "sell"'
    assert report is not None
    assert report.reason == 'node "sell" was skipped'
    (buy,) = await bench.take()
    await bench.complete(buy)
    component = await only_component(bench)
    assert (component.completed, component.skipped, component.sinks_completed) == (2, 2, 1)


async def test_null_is_a_value(bench: Bench) -> None:
    await bench.submit(plan_of("a>b"))
    (a,) = await bench.take()
    await bench.complete(a, out="null")
    (b,) = await bench.take()
    assert b.inputs == ((0, "null"),)


async def test_run_if_any_succeeded_runs_with_one_live_edge_and_all_done_with_none(bench: Bench) -> None:
    run_if = {"any": RunIf.ANY_SUCCEEDED, "done": RunIf.ALL_DONE}
    plan = plan_of("a.x>any a.y>any a.y>done a.y>all a.x>all a.y>none", run_if=run_if)
    await bench.submit(plan)
    (a,) = await bench.take()
    await bench.complete(a, x="1")
    assert await bench.statuses(plan) == {
        "a": "completed",
        "any": "pending",
        "done": "pending",
        "all": "skipped",
        "none": "skipped",
    }
    taken = {each.task_id[8:]: each.inputs for each in await bench.take()}
    assert taken == {":any": ((0, "1"),), ":done": ()} or taken == {"any": ((0, "1"),), "done": ()}


async def test_failure_skips_downstream_nodes_but_not_other_branches(bench: Bench) -> None:
    plan = plan_of("a>b b>c a>d")
    await bench.submit(plan)
    (a,) = await bench.take()
    await bench.complete(a, out="1")
    b, _d = await bench.take()
    effects = await bench.shard.complete([failed(b)])
    assert effects.results == ("",)
    assert await bench.statuses(plan) == {"a": "completed", "b": "failed", "c": "skipped", "d": "running"}
    (record,) = await bench.shard.tasks(["flow:0:0:b"])
    assert record is not None
    assert record.error == TaskError("NODE_ERROR", "it broke", "ValueError", "line 1")


async def test_continue_policy_runs_downstream_nodes_without_the_failed_input(bench: Bench) -> None:
    plan = plan_of("a>c b>c", policy=FailurePolicy.CONTINUE)
    await bench.submit(plan)
    a, b = await bench.take()
    await bench.shard.complete([failed(a)])
    await bench.complete(b, out="2")
    (c,) = await bench.take()
    assert c.inputs == ((1, "2"),)


async def test_fail_fast_stops_the_component(bench: Bench) -> None:
    plan = plan_of("a>c b>c c>d", policy=FailurePolicy.FAIL_FAST)
    await bench.submit(plan)
    a, b = await bench.take()
    effects = await bench.shard.complete([failed(a)])
    assert [t.task_id for t in effects.terminations] == ["flow:0:0:b"]
    assert await bench.statuses(plan) == {"a": "failed", "b": "running", "c": "skipped", "d": "skipped"}
    await bench.shard.complete([Outcome(b.task_id, b.attempt, b.nonce, OutcomeKind.TERMINATED)])
    assert await bench.statuses(plan) == {"a": "failed", "b": "terminated", "c": "skipped", "d": "skipped"}
    assert (await only_component(bench)).status is ComponentStatus.FINISHED


async def test_resubmitted_run_is_a_duplicate_and_another_run_id_a_conflict(bench: Bench) -> None:
    plan = plan_of("a")
    assert await bench.submit(plan) == "accepted"
    assert await bench.submit(plan) == "duplicate"
    assert await bench.submit(plan, run_id="r1") == "run_conflict"
    assert len(await bench.take()) == 1


async def test_runs_of_one_call_are_compared_with_each_other_too(bench: Bench) -> None:
    plan = plan_of("a")
    await bench.shard.save(plan)
    run = RunSubmission(RUN, "r0", "default", (("0", plan.digest),), partition=3, begun_ms=bench.clock())
    submitted = await bench.shard.submit([run, run, structs.replace(run, run_id="r1")])
    assert [each.outcome for each in submitted.results] == ["accepted", "duplicate", "run_conflict"]
    assert len(await bench.take()) == 1


async def test_run_is_ended_when_a_later_one_is_given_its_name(bench: Bench) -> None:
    """The scheduler's store has lost the first one, or the name would not be free."""
    plans = [plan_of("a>b"), plan_of("c"), plan_of("last")]
    for plan in plans:
        await bench.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    run = RunSubmission(RUN, "r0", "default", parts, 3, begun_ms=bench.clock(), withheld=("2",))
    a, c = (await bench.shard.submit([run], [Vacancy("w1", 0, 9, ("noop",))])).effects.assignments
    await bench.complete(c, out="1")
    for begun_ms, stopped in ((bench.clock(), []), (bench.clock() + 1, [a.task_id]), (bench.clock() + 2, [])):
        bench.clock.advance(1)
        submitted = await bench.shard.submit([structs.replace(run, run_id="r1", begun_ms=begun_ms)])
        assert [each.outcome for each in submitted.results] == ["run_conflict"]
        assert [each.task_id for each in submitted.effects.terminations] == stopped
    await bench.shard.complete([Outcome(a.task_id, a.attempt, a.nonce, OutcomeKind.TERMINATED)])
    components = await bench.shard.components([(RUN, component_id) for component_id, _ in parts])
    assert [each and each.status for each in components] == [ComponentStatus.FINISHED] * 3
    assert await bench.statuses(plans[2]) == {"last": "skipped"}


async def test_run_with_an_unknown_plan_is_refused_and_not_created(bench: Bench) -> None:
    run = RunSubmission(RUN, "r0", "default", (("0", "nobody-knows"),), partition=3)
    (result,) = (await bench.shard.submit([run])).results
    assert (result.outcome, result.unknown_plans) == ("plan_unknown", ("nobody-knows",))
    assert await bench.shard.components([(RUN, "0")]) == [None]


async def test_late_attempt_is_refused_but_a_completion_may_be_repeated(bench: Bench) -> None:
    plan = plan_of("a")
    await bench.submit(plan)
    (first,) = await bench.take()
    bench.clock.advance(30_001)
    effects = await bench.shard.reap()
    assert effects.results == ("flow:0:0:a",)
    (second,) = await bench.take(worker_id="w2")
    assert (second.attempt, second.nonce != first.nonce) == (2, True)
    assert "lease lapsed" in await bench.complete(first, out="1")
    assert await bench.complete(second, out="2") == ""
    assert await bench.complete(second, out="2") == ""
    assert await bench.complete(first, out="1") == "the node task is completed"
    (record,) = await bench.shard.tasks(["flow:0:0:a"], outputs=True)
    assert record is not None
    assert record.outputs == (("out", "2"),)


async def test_node_task_that_no_worker_takes_fails_with_start_timeout(bench: Bench) -> None:
    await bench.submit(plan_of("a", schedule_to_start_ms=1000))
    bench.clock.advance(999)
    assert (await bench.shard.reap()).results == ()
    bench.clock.advance(1)
    await bench.shard.reap()
    (record,) = await bench.shard.tasks(["flow:0:0:a"])
    assert record is not None
    assert record.error is not None
    assert record.error == TaskError("START_TIMEOUT", 'no worker that offers "noop" took it within 1 s')
    assert await bench.take() == []


async def test_users_take_turns(bench: Bench) -> None:
    for user, count in (("ann", 5), ("bob", 2)):
        for number in range(count):
            await bench.submit(plan_of("a"), flow_id=f"{user}{number}", user_id=user)
    order = [(await bench.take(1))[0].user_id for _ in range(7)]
    assert order == ["ann", "bob", "ann", "bob", "ann", "ann", "ann"]


async def test_node_tasks_go_to_the_roomiest_worker_that_offers_their_type(bench: Bench) -> None:
    await bench.submit(plan_of("a b c"))
    vacancies = [Vacancy("w1", 0, 1, ("noop",)), Vacancy("w2", 0, 5, ("noop",)), Vacancy("w3", 0, 9, ("other",))]
    effects = await bench.shard.claim(vacancies)
    assert [a.worker_id for a in effects.assignments] == ["w2", "w2", "w2"]


async def test_node_tasks_of_types_that_workers_of_several_kinds_offer_go_to_those_who_offer_them(bench: Bench) -> None:
    nodes = tuple(PlanNode(f"{node_type}{at}", node_type) for node_type in ("t1", "t2", "t3") for at in range(3))
    await bench.submit(Plan("three types", nodes, ()))
    room = [("a", ("t1", "t2")), ("b", ("t2", "t3")), ("c", ("t1", "t2"))]
    effects = await bench.shard.claim([Vacancy(worker, 0, 4, types, 4) for worker, types in room])
    given = "".join(f"{each.task_id.rpartition(':')[2]}{each.worker_id} " for each in effects.assignments)
    assert given == "t10a t11c t12a t20b t21c t22b t30b t31b "


async def test_node_task_that_becomes_ready_as_its_flow_fails_is_left_to_the_stop(
    store: RedisServer | None, clock: ManualClock
) -> None:
    limits = Limits(records_per_script=3)
    bench = Bench(memory_shard(clock, limits) if store is None else redis_shard(store, clock, limits), clock)
    plan = plan_of("a>b x c d e f g", policy=FailurePolicy.FAIL_FAST)
    await bench.submit(plan)
    while (await bench.shard.claim()).todo:
        pass
    a, x, *_ = await bench.take()
    done = Outcome(a.task_id, a.attempt, a.nonce, OutcomeKind.COMPLETED, (("out", "1"),))
    effects = await bench.shard.complete([done, failed(x)], [Vacancy("w2", 0, 5, ("noop",))])
    assert effects.assignments == ()
    while (await bench.shard.claim()).todo:
        pass
    assert (await bench.statuses(plan))["b"] == "skipped"


async def test_large_values_stay_with_their_source(bench: Bench) -> None:
    await bench.submit(plan_of("a.short>b a.long>b"))
    (a,) = await bench.take()
    short = '"' + "x" * (LIMITS.signal_bytes - 2) + '"'
    await bench.complete(a, short=short, long=f"{short} ")
    (b,) = await bench.take()
    assert b.inputs == ((0, short), (1, "@"))


async def test_event_brings_the_outputs_of_the_only_sink_if_they_are_small(bench: Bench) -> None:
    for cycle, size in enumerate((LIMITS.answer_bytes, LIMITS.answer_bytes + 1)):
        await bench.submit(plan_of("a"), cycle=cycle)
        (a,) = await bench.take()
        await bench.complete(a, x="1", y="1" * (size - 1))
    small, large = [event for event in await bench.shard.read({3: "0"}, 10) if isinstance(event, ComponentEvent)]
    assert [[handle for handle, _ in event.outputs] for event in (small, large)] == [["x", "y"], []]


async def test_inputs_too_large_together_are_read_outside_the_claim(bench: Bench) -> None:
    names = [f"n{number}" for number in range(70)]
    await bench.submit(plan_of(" ".join(f"{name}>join" for name in names), digest="wide"))
    value = '"' + "x" * 4000 + '"'
    for each in await bench.take():
        await bench.complete(each, out=value)
    (join,) = await bench.take()
    assert (join.inputs, join.inputs_outside) == ((), True)
    (record,) = await bench.shard.tasks([join.task_id], inputs=True)
    assert record is not None
    assert record.inputs == tuple((place, value) for place in range(70))


async def test_inputs_of_a_run_reach_the_entry_nodes_of_every_component(bench: Bench) -> None:
    plans = [plan_of("a>b"), plan_of("c")]
    for plan in plans:
        await bench.shard.save(plan)
    parts = tuple((str(at), plan.digest) for at, plan in enumerate(plans))
    run = RunSubmission(RUN, "r0", "default", parts, 3, inputs_json='{"x":1}')
    room = [Vacancy("w1", 0, 1, ("noop",))]
    taken = [*(await bench.shard.submit([run], room)).effects.assignments, *(await bench.take())]
    assert {each.task_id[9:]: each.run_inputs for each in taken} == {"a": '{"x":1}', "c": '{"x":1}'}
    await bench.complete(taken[0], out="1")
    (b,) = await bench.take()
    assert b.run_inputs == ""


async def test_inputs_of_a_released_component_do_not_reach_a_later_run_of_the_same_name(bench: Bench) -> None:
    plan = plan_of("a")
    await bench.shard.save(plan)
    run = RunSubmission(RUN, "r0", "default", (("0", plan.digest),), 3, inputs_json='{"x":1}', begun_ms=bench.clock())
    await bench.shard.submit([structs.replace(run, withheld=("0",))])
    await bench.shard.release(RUN, "r0", [Release("0", '{"y":2}')])
    assert [each.run_inputs for each in await bench.take()] == ['{"y":2}']
    await bench.shard.purge("flow")
    bench.clock.advance(1)
    await bench.shard.submit([structs.replace(run, run_id="r1", begun_ms=bench.clock())])
    assert [each.run_inputs for each in await bench.take()] == ['{"x":1}']


async def test_purged_flow_is_gone_and_refuses_late_completions_and_older_runs(bench: Bench) -> None:
    plan = plan_of("a>b")
    await bench.submit(plan)
    await bench.submit(plan, flow_id="other")
    taken = await bench.take(1)
    purge = await bench.shard.purge("flow")
    assert purge.done
    assert [t.task_id for t in purge.effects.terminations] == [a.task_id for a in taken]
    assert await bench.complete(taken[0], out="1") == "no such node task"
    assert await bench.statuses(plan) == {"a": "-", "b": "-"}
    assert await bench.submit(plan) == "flow_purged"
    bench.clock.advance(1)
    assert await bench.submit(plan, run_id="r2") == "accepted"
    assert sorted(a.task_id for a in await bench.take()) == ["flow:0:0:a", "other:0:0:a"]


async def test_run_is_refused_while_another_of_its_name_is_being_purged(
    redis_server: RedisServer, clock: ManualClock
) -> None:
    bench = Bench(redis_shard(redis_server, clock, Limits(records_per_script=6)), clock)
    small, large = plan_of("a"), plan_of("b c d e f g h i")
    for plan in (small, large):
        await bench.shard.save(plan)
    parts = (("0", small.digest), ("1", large.digest))
    run = RunSubmission(RUN, "r0", "default", parts, 3, begun_ms=clock())
    await bench.shard.submit([run])
    assert not (await bench.shard.purge("flow")).done
    clock.advance(1)
    later = structs.replace(run, run_id="r1", begun_ms=clock())
    other = structs.replace(later, run=RunName("other", 0, 0))
    submitted = await bench.shard.submit([later, other])
    assert [each.outcome for each in submitted.results] == ["run_conflict", "accepted"]
    while not (await bench.shard.purge("flow")).done:
        pass


async def test_purge_refuses_runs_that_began_up_to_its_flows_schedule_epoch(bench: Bench) -> None:
    plan = plan_of("a")
    await bench.shard.save(plan)
    # The scheduler's store, by whose clock a later flow of the name begins its runs, may be behind.
    epoch = bench.clock() - 500
    assert (await bench.shard.purge("flow", epoch)).done
    runs = [
        RunSubmission(RunName("flow", cycle, 0), "r", "default", (("0", plan.digest),), 3, begun_ms=epoch + cycle)
        for cycle in range(2)
    ]
    submitted = await bench.shard.submit(runs)
    assert [each.outcome for each in submitted.results] == ["flow_purged", "accepted"]


async def test_purge_that_comes_late_spares_a_later_flow_of_the_same_name(bench: Bench) -> None:
    plan = plan_of("a")
    await bench.submit(plan)
    assert (await bench.shard.purge("flow", 7)).done
    bench.clock.advance(1)
    assert await bench.submit(plan, run_id="r2") == "accepted"
    bench.clock.advance(1)
    assert await bench.shard.purge("flow", 7) == Purge(0, True, Effects())
    assert await bench.submit(plan, cycle=1, run_id="r3") == "accepted"
    assert [given.task_id for given in await bench.take()] == ["flow:0:0:a", "flow:1:0:a"]
    assert len((await bench.shard.purge("flow", 8)).effects.terminations) == 2
    assert await bench.statuses(plan) == {"a": "-"}
    bench.clock.advance(1)
    assert await bench.submit(plan, run_id="r4") == "accepted"
    for late in (7, 8):
        assert await bench.shard.purge("flow", late) == Purge(0, True, Effects())
    assert [given.task_id for given in await bench.take()] == ["flow:0:0:a"]


async def test_a_lower_epoch_may_not_subscribe(bench: Bench) -> None:
    assert await bench.shard.subscribe(3, 5)
    assert await bench.shard.subscribe(3, 5)
    assert not await bench.shard.subscribe(3, 4)
    assert await bench.shard.subscribe(4, 1)
