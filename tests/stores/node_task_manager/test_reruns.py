"""Reruns that keep results of nodes of the previous run."""

from dataclasses import replace
from typing import Any

from msgspec import structs

from tests.servers import RedisServer
from tests.stores.node_task_manager.cleaning import acknowledge, clean, settle
from tests.stores.node_task_manager.shards import LIMITS, Bench, memory_shard, plan_of, redis_shard
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis_reader import RedisNodeTaskReader
from tradewind.server.clock import ManualClock

SETTLE, SECOND = LIMITS.settle_ms, 1000
LARGE = '"' + "v" * 5000 + '"'


def first_run(bench: Bench, plan: Plan, keep_cycles: int = 0) -> RunSubmission:
    """Return the first run of a cycle with one component."""
    return RunSubmission(
        RunName("flow", 0, 0),
        "r0",
        "default",
        (("0", plan.digest),),
        3,
        begun_ms=bench.clock(),
        keep_cycles=keep_cycles,
    )


def rerun_of(before: RunSubmission, *places: int) -> RunSubmission:
    """Return a rerun that keeps the results of these nodes."""
    name = structs.replace(before.run, run=before.run.run + 1)
    return structs.replace(
        before,
        run=name,
        run_id=f"r{name.run}",
        source=before.run.run,
        source_id=before.run_id,
        kept=(("0", places),) if places else (),
    )


async def run_all(bench: Bench, submission: RunSubmission, **outputs: str) -> list[str]:
    """Carry out a run; nodes emit the value given for their ids, else 1. Return the ids of those that ran, in order."""
    assert (await bench.shard.submit([submission])).results[0].outcome == "accepted"
    ran: list[str] = []
    while (await bench.shard.claim()).todo:
        pass
    while taken := await bench.take():
        for each in taken:
            node_id = each.task_id.rpartition(":")[2]
            ran.append(node_id)
            assert await bench.complete(each, out=outputs.get(node_id, "1")) == ""
        while (await bench.shard.claim()).todo:
            pass
    return ran


async def test_kept_nodes_do_not_run_and_feed_those_that_do(bench: Bench) -> None:
    plan = plan_of("a>b b>c a>d")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    assert sorted(await run_all(bench, before, a=LARGE, b="2")) == ["a", "b", "c", "d"]
    rerun = rerun_of(before, 0, 1, 3)
    assert (await bench.shard.submit([rerun])).results[0].outcome == "accepted"
    (assigned,) = await bench.take()
    assert (assigned.task_id, assigned.inputs) == ("flow:0:1:c", ((1, "@"),))
    assert await bench.shard.outputs([("flow:0:1:b", "out"), ("flow:0:1:a", "out")]) == ["2", LARGE]
    assert await bench.complete(assigned, out="3") == ""
    tasks = await bench.shard.tasks([f"flow:0:1:{name}" for name in "abcd"], outputs=True)
    assert [task and (task.status.value, task.kept, dict(task.outputs)["out"]) for task in tasks] == [
        ("completed", "flow:0:0:a", LARGE),
        ("completed", "flow:0:0:b", "2"),
        ("completed", "", "3"),
        ("completed", "flow:0:0:d", "1"),
    ]
    (component,) = await bench.shard.components([(rerun.run, "0")])
    assert component is not None
    assert (component.completed, component.sinks_completed, component.open) == (4, 2, 0)
    assert await bench.shard.emitted(["flow:0:1:d"]) == [(("out", "1"),)]
    # The next rerun refers to where the results are, not to a run that refers to them itself.
    assert await run_all(bench, rerun_of(rerun, 0, 1, 2)) == ["d"]
    tasks = await bench.shard.tasks([f"flow:0:2:{name}" for name in "abc"])
    assert [task and task.kept for task in tasks] == ["flow:0:0:a", "flow:0:0:b", "flow:0:1:c"]


async def test_rerun_that_keeps_all_results_ends_at_once(bench: Bench) -> None:
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    await run_all(bench, before)
    assert await run_all(bench, rerun_of(before, 0, 1)) == []
    assert [event.run for event in await bench.shard.read({3: "0"}, 10)] == ["flow:0:0", "flow:0:1"]


async def test_stopped_rerun_leaves_kept_results_completed(bench: Bench) -> None:
    plan = plan_of("a>b b>c")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    await run_all(bench, before)
    rerun = rerun_of(before, 0)
    await bench.shard.stop(rerun.run, rerun.run_id, "", "enough", "ann", 1000)
    assert await run_all(bench, rerun) == []
    tasks = await bench.shard.tasks([f"flow:0:1:{name}" for name in "abc"])
    assert [task and task.status.value for task in tasks] == ["completed", "skipped", "skipped"]


async def test_nodes_without_a_good_result_run_though_they_were_to_be_kept(bench: Bench) -> None:
    plan = plan_of("a b>c")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    await bench.shard.submit([before])
    a, b = await bench.take()
    await bench.complete(a, out="1")
    broke = TaskError("NODE_ERROR", "broke")
    await bench.shard.complete([Outcome(b.task_id, b.attempt, b.nonce, OutcomeKind.FAILED, error=broke)])
    assert await run_all(bench, rerun_of(before, 0, 1, 2, 7)) == ["b", "c"]


async def test_delay_node_passes_on_what_a_kept_node_emitted(bench: Bench) -> None:
    plan = plan_of("a>pause pause.output>z")
    pause = PlanNode("pause", "delay", wait=Wait(after_ms=700, late=("output", "null"), passes=True))
    plan = replace(plan, nodes=(plan.nodes[0], pause, plan.nodes[2]))
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    for run in (before, rerun_of(before, 0), rerun_of(rerun_of(before, 0), 0)):
        assert await run_all(bench, run, a=LARGE) == ([] if run.kept else ["a"])
        bench.clock.advance(700)
        await bench.shard.claim()
        assert await bench.shard.outputs([(run.run.task_id("pause"), "output")]) == [LARGE]
        (last,) = await bench.take()
        await bench.complete(last)


async def test_rerun_of_a_run_that_is_being_removed_is_refused(store: RedisServer | None, clock: ManualClock) -> None:
    limits = replace(LIMITS, clean_keys=10)
    bench = Bench(memory_shard(clock, limits) if store is None else redis_shard(store, clock, limits), clock)
    plan = plan_of(" ".join(f"n{at}" for at in range(20)))
    await bench.shard.save(plan)
    before = first_run(bench, plan, keep_cycles=1)
    await run_all(bench, before)
    await run_all(bench, structs.replace(before, run=RunName("flow", 1, 0), run_id="newer"))
    await acknowledge(bench)
    clock.advance(SETTLE)
    for _ in range(2):
        await bench.shard.clean("c", None)
        assert (await bench.shard.submit([rerun_of(before, 0)])).results[0].outcome == "results_expired"


async def test_rerun_stopped_while_it_takes_over_results_keeps_all_of_them(
    store: RedisServer | None, clock: ManualClock
) -> None:
    limits = replace(LIMITS, records_per_script=3)
    bench = Bench(memory_shard(clock, limits) if store is None else redis_shard(store, clock, limits), clock)
    plan = plan_of("a b c d e f>g")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    await run_all(bench, before)
    rerun = rerun_of(before, 3, 4, 5, 0, 1, 2)
    assert (await bench.shard.submit([rerun])).results[0].outcome == "accepted"
    await bench.shard.stop(rerun.run, rerun.run_id, "", "enough", "ann", 1000)
    while (await bench.shard.claim()).todo:
        pass
    tasks = await bench.shard.tasks([rerun.run.task_id(node) for node in "abcdefg"])
    assert [task and task.status.value for task in tasks] == ["completed"] * 6 + ["skipped"]


async def test_rerun_of_missing_results_is_refused_as_expired(bench: Bench) -> None:
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    for unknown in (rerun_of(before, 0), structs.replace(rerun_of(before, 0), source_id="other")):
        assert (await bench.shard.submit([unknown])).results[0].outcome == "results_expired"
    await run_all(bench, before)
    submitted = await bench.shard.submit([structs.replace(rerun_of(before, 0), source_id="x")])
    assert submitted.results[0].outcome == "results_expired"


async def test_rerun_that_keeps_nothing_needs_no_results(bench: Bench) -> None:
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    rerun = rerun_of(before)
    assert await run_all(bench, rerun) == ["a", "b"]
    assert await run_all(bench, rerun_of(rerun, 0)) == ["b"]
    await _settle(bench)
    assert not await bench.shard.component_ids(before.run)


async def test_runs_of_a_cycle_are_kept_and_removed_together(bench: Bench, store: RedisServer | None) -> None:
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    before = first_run(bench, plan, keep_cycles=1)
    await run_all(bench, before)
    rerun = rerun_of(before, 0)
    assert (await bench.shard.submit([rerun])).results[0].outcome == "accepted"
    other = structs.replace(before, run=RunName("flow", 1, 0), run_id="other")
    # While the rerun is open, its source is not trimmed, however many cycles end.
    await _settle(bench)
    (assigned,) = await bench.take()
    assert await bench.shard.outputs([("flow:0:1:a", "out")]) == ["1"]
    assert await bench.complete(assigned, out="1") == ""
    await _settle(bench)
    assert await bench.shard.component_ids(before.run)
    if store is not None:
        client = store.connect()
        ttls = [await client.pttl(f"trading_flow:{{s0}}:run:flow:0:{number}") for number in (0, 1)]
        # The test's clock has advanced by that much since the rerun's record got its TTL.
        assert 0 < ttls[1] - SETTLE <= ttls[0] + SECOND
    await run_all(bench, other)
    await _settle(bench)
    assert not await bench.shard.component_ids(before.run)
    assert not await bench.shard.component_ids(rerun.run)
    assert await bench.shard.tasks(["flow:0:0:a", "flow:0:1:a"]) == [None, None]
    assert (await bench.shard.submit([rerun_of(rerun, 0)])).results[0].outcome == "results_expired"


async def test_eleven_runs_of_a_cycle_are_removed_together(bench: Bench) -> None:
    """The names of the last two are not in the order of their numbers."""
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    before = first_run(bench, plan, keep_cycles=1)
    await run_all(bench, structs.replace(before, run=RunName("flow", 1, 0), run_id="newer"))
    await _settle(bench)
    runs = [before]
    await run_all(bench, before)
    for _ in range(10):
        runs.append(rerun_of(runs[-1], 0))
        await run_all(bench, runs[-1])
    # The scheduler has not acknowledged them yet, so all are checked again at the same time.
    bench.clock.advance(SETTLE)
    await clean(bench)
    await _settle(bench)
    await _settle(bench)
    assert [await bench.shard.component_ids(each.run) for each in runs] == [()] * 11


class RemovesRun:
    """A client that removes a run of the flow as soon as something was read."""

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key

    def pipeline(self, *, transaction: bool) -> Any:
        pipeline = self._client.pipeline(transaction=transaction)
        execute = pipeline.execute

        async def then_remove() -> Any:
            found = await execute()
            await self._client.delete(self._key)
            return found

        pipeline.execute = then_remove
        return pipeline


async def test_outputs_of_a_run_removed_while_being_read_are_missing(
    redis_bench: Bench, redis_server: RedisServer
) -> None:
    bench, keys = redis_bench, Keys("trading_flow", 0)
    plan = plan_of("a>b")
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    await run_all(bench, before, a=LARGE)
    await run_all(bench, rerun_of(before, 0))
    wanted = [("flow:0:1:a", "out"), ("flow:0:0:a", "out")]
    client: Any = RemovesRun(redis_server.connect(), keys.run("flow:0:1"))
    assert await RedisNodeTaskReader(client, keys).outputs(wanted) == [None, LARGE]
    # The earlier run was to go with the one that the test has removed.
    await redis_server.flush()


async def _settle(bench: Bench) -> None:
    await settle(bench)


async def test_many_results_are_kept_in_bounded_steps(store: RedisServer | None) -> None:
    """With ten records per script it takes many scripts; nothing is delivered before all results are taken over."""
    clock, limits = ManualClock(), replace(LIMITS, records_per_script=10)
    if store is None:
        bench = Bench(memory_shard(clock, limits), clock)
    else:
        bench = Bench(redis_shard(store, clock, limits), clock)
    leaves = [f"n{at}" for at in range(60)]
    plan = plan_of(" ".join([f"a>{name} {name}>z.many" for name in leaves]))
    await bench.shard.save(plan)
    before = first_run(bench, plan)
    assert len(await run_all(bench, before)) == 62
    places = [place for place, node in enumerate(plan.nodes) if node.node_id not in ("n7", "z")]
    assert await run_all(bench, rerun_of(before, *places), n7="7") == ["n7", "z"]
    (task,) = await bench.shard.tasks(["flow:0:1:z"], inputs=True)
    assert task is not None
    assert sorted(value for _, value in task.inputs) == sorted(["@"] * 59 + ["7"])
