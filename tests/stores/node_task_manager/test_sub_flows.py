"""Node tasks that wait for a cycle of another flow: the scheduler is notified of each attempt and reports its end."""

from dataclasses import replace

from tests.stores.node_task_manager.shards import RUN, Bench
from tradewind.node_task_manager.domain.component import Release, RunSubmission
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, TaskError
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.sub_flow import ReportKind, SubFlowReport
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.events import SubFlowEvent

RUNS_B = PlanNode("a", "flow", wait=Wait(flow_id="b"))
EDGE = (PlanEdge(0, "output", 1, "in"),)
PLAN = Plan("sub", (RUNS_B, PlanNode("z", "noop")), EDGE)
AGAIN = Plan("again", (replace(RUNS_B, retry=RetryPolicy(2, initial_ms=100, jitter=0)), PlanNode("z", "noop")), EDGE)
ERROR = TaskError("SUB_FLOW_FAILED", 'cycle 4 of flow "b" ended as failed')
BEGUN = SubFlowReport("flow:0:0:a", "r0", 1, ReportKind.BEGUN, "b:4:0")
COMPLETED = replace(BEGUN, kind=ReportKind.COMPLETED, output='{"x":1}')
FAILED = replace(BEGUN, kind=ReportKind.FAILED, error=ERROR)


async def task(bench: Bench) -> NodeTask:
    (found,) = await bench.shard.tasks(["flow:0:0:a"], outputs=True)
    assert found is not None
    return found


async def reported_children(bench: Bench) -> list[str]:
    """Return the cycles in the events: "" for a cycle that is wanted, else one that is no longer needed."""
    events = await bench.shard.read({3: "0"}, 100)
    mine = [event for event in events if isinstance(event, SubFlowEvent)]
    assert {(event.task_id, event.run_id, event.user_id) for event in mine} <= {("flow:0:0:a", "r0", "default")}
    return [event.child for event in mine]


async def report(bench: Bench, *reports: SubFlowReport) -> list[str]:
    return list((await bench.shard.report_sub_flows(reports)).results)


async def test_scheduler_is_notified_and_its_cycle_completes_the_node_once(bench: Bench) -> None:
    await bench.submit(PLAN)
    assert await reported_children(bench) == [""]
    assert ((await task(bench)).status, (await task(bench)).attempt) == ("suspended", 1)
    assert await report(bench, BEGUN, BEGUN) == ["", ""]
    assert (await task(bench)).child == "b:4:0"
    first, second = await report(bench, COMPLETED, COMPLETED)
    assert (first, bool(second)) == ("", True)
    done = await task(bench)
    assert (done.status, done.outputs, done.child) == ("completed", (("output", '{"x":1}'),), "b:4:0")
    assert (await bench.statuses(PLAN))["z"] == "pending"
    assert await reported_children(bench) == [""]


async def test_cycle_that_is_due_in_a_moment_runs_no_other_before_its_planned_time(bench: Bench) -> None:
    await bench.submit(PLAN, planned_ms=bench.clock() + 700)
    bench.clock.advance(699)
    await bench.shard.reap()
    early = await task(bench)
    assert (early.status, early.retry_at) == ("pending", bench.clock() + 1)
    assert await reported_children(bench) == []
    bench.clock.advance(1)
    await bench.shard.reap()
    begun = await task(bench)
    assert (begun.status, begun.attempt, begun.started_at, begun.retry_at) == ("suspended", 1, bench.clock(), 0)
    assert await reported_children(bench) == [""]


async def test_end_report_counts_without_a_report_of_the_beginning(bench: Bench) -> None:
    await bench.submit(PLAN)
    assert await report(bench, COMPLETED) == [""]
    assert ((await task(bench)).status, (await task(bench)).child) == ("completed", "b:4:0")


async def test_reports_of_another_cycle_attempt_or_run_change_nothing(bench: Bench) -> None:
    await bench.submit(PLAN)
    await report(bench, BEGUN)
    before = await task(bench)
    others = (replace(FAILED, child="b:5:0"), replace(FAILED, attempt=2), replace(FAILED, run_id="r1"))
    assert all(await report(bench, *others, replace(BEGUN, child="b:5:0")))
    assert await task(bench) == before


async def test_failed_sub_flow_is_retried_with_a_new_cycle(bench: Bench) -> None:
    await bench.submit(AGAIN)
    assert await report(bench, BEGUN, FAILED) == ["", ""]
    assert (await task(bench)).status == "pending"
    bench.clock.advance(200)
    await bench.shard.reap()
    waiting = await task(bench)
    assert (waiting.status, waiting.attempt, waiting.child) == ("suspended", 2, "")
    assert await reported_children(bench) == ["", ""]
    assert await report(bench, replace(FAILED, attempt=2, child="b:5:0")) == [""]
    failed = await task(bench)
    assert (failed.status, failed.failures, failed.error and failed.error.code) == ("failed", 2, "SUB_FLOW_FAILED")
    logged = [(line.attempt, line.message) for line in await bench.shard.lines(RUN, "", 9)]
    assert logged == [(1, ERROR.summary), (1, "attempt 2 follows in 100 ms"), (2, ERROR.summary)]
    assert (await bench.statuses(AGAIN))["z"] == "skipped"


async def test_attempts_of_sub_flow_nodes_raise_the_retry_budget(bench: Bench) -> None:
    nodes = tuple(replace(AGAIN.nodes[0], node_id=f"n{at}") for at in range(100))
    plan = Plan("many", nodes, ())
    await bench.submit(plan)
    await report(bench, *(replace(FAILED, task_id=f"flow:0:0:n{at}") for at in range(30)))
    statuses = list((await bench.statuses(plan)).values())
    assert (statuses.count("pending"), statuses.count("failed")) == (20, 10)


async def test_final_failure_report_is_not_retried(bench: Bench) -> None:
    await bench.submit(AGAIN)
    assert await report(bench, replace(FAILED, child="", final=True)) == [""]
    assert (await task(bench)).status == "failed"


async def test_stop_reports_the_cycle_that_is_no_longer_needed(bench: Bench) -> None:
    await bench.submit(PLAN)
    await report(bench, BEGUN)
    await bench.shard.stop(RunName("flow", 0, 0), "r0", "", "enough", "ann", 1000)
    assert (await task(bench)).status == "terminated"
    assert await reported_children(bench) == ["", "b:4:0"]
    assert await report(bench, COMPLETED) == ["the node task is terminated"]


async def test_stop_before_the_cycle_is_known_reports_none(bench: Bench) -> None:
    await bench.submit(PLAN)
    await bench.shard.terminate("flow:0:0:a", "0", 0, "enough", "ann")
    assert await reported_children(bench) == [""]
    assert await report(bench, BEGUN) == ["the node task is terminated"]


async def test_total_time_ends_a_sub_flow_node_without_retry(bench: Bench) -> None:
    await bench.submit(Plan("timed", (replace(AGAIN.nodes[0], total_ms=1000), PlanNode("z", "noop")), EDGE))
    await report(bench, BEGUN)
    bench.clock.advance(1001)
    await bench.shard.reap()
    ended = await task(bench)
    assert (ended.status, ended.error and ended.error.code) == ("failed", "TOTAL_TIMEOUT")
    assert await reported_children(bench) == ["", "b:4:0"]


async def test_component_released_with_inputs_gets_them_instead_of_the_run_inputs(bench: Bench) -> None:
    run = RunName("flow", 0, 0)
    await bench.shard.save(PLAN)
    parts = tuple((at, PLAN.digest) for at in "012")
    submission = RunSubmission(run, "r0", "default", parts, 3, inputs_json='{"x":1}', withheld=("1", "2"))
    await bench.shard.submit([submission])
    await bench.shard.release(run, "r0", [Release("1", '{"y":2}'), Release("2")])
    inputs = [await bench.shard.run_inputs(run, component_id) for component_id in "012"]
    assert inputs == ['{"x":1}', '{"y":2}', '{"x":1}']
    assert await bench.shard.run_inputs(RunName("unknown", 0, 0), "0") == ""
