"""Calendars, pauses, queues of planned times and their outcomes, over gRPC."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import notification_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2
from tradewind.api.trigger.v1.trigger_pb2 import EventSchedule
from tradewind.server.schedules.jitter import delay_ms

MINUTE = 60_000
HOUR = 60 * MINUTE


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def register(scheduler: Client, **fields: Any) -> flow_pb2.Flow:
    """Register flow `f` of one node."""
    spec = flow_pb2.FlowSpec(nodes=[flow_pb2.NodeSpec(id="a", type="t")], **fields)
    return (await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))).flow


async def answer(peers: Peers, token: str) -> trigger_service_pb2.DueTriggerAck:
    await until(lambda: peers.triggers.answer(token), f"trigger {token} is answered")
    found = peers.triggers.answer(token)
    assert isinstance(found, trigger_service_pb2.DueTriggerAck), found
    return found


async def fire(peers: Peers, planned_ms: int) -> trigger_service_pb2.DueTriggerAck:
    (token,) = peers.triggers.fire(["f"], planned_ms)
    return await answer(peers, token)


async def firings(scheduler: Client) -> list[tuple[str, int]]:
    """Return the outcomes of planned times, the latest first, and how many times had each."""
    response = await scheduler.stub.ListFirings(pb2.ListFiringsRequest(flow_id="f"))
    return [(flow_pb2.FiringOutcome.Name(line.outcome).rpartition("_")[2], line.count) for line in response.firings]


async def test_cron_flow_is_due_at_the_times_of_its_expression(scheduler: Client, peers: Peers) -> None:
    schedule = flow_pb2.ScheduleSpec(cron="30 9 * * 1-5", zone="Europe/Berlin", jitter="5s")
    await register(scheduler, schedule=schedule)
    flow = await scheduler.start()
    trigger = peers.triggers.triggers["f"]
    assert (trigger.schedule.cron.expression, trigger.schedule.cron.time_zone) == ("30 9 * * 1-5", "Europe/Berlin")
    assert trigger.schedule.jitter.seconds == 5
    assert trigger.schedule.start == flow.next_execution
    planned = (
        await scheduler.stub.ListNextExecutions(pb2.ListNextExecutionsRequest(flow_id="f", count=3))
    ).planned_times
    assert len(planned) == 3
    assert planned[0] == flow.next_execution
    ack = await fire(peers, planned[0].ToMilliseconds())
    assert ack.next_fire_time == planned[1]
    assert await firings(scheduler) == [("FIRED", 1)]


async def test_flow_that_runs_once_at_its_start_goes_on_record(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(interval="0", start="2035-01-01T00:00:00Z"))
    flow = await scheduler.start()
    assert flow.next_execution.ToDatetime(UTC) == datetime(2035, 1, 1, tzinfo=UTC)
    assert json.loads(flow.config_json)["schedule"] == {"interval": 0, "start": "2035-01-01T00:00:00Z"}
    assert await scheduler.flow() == flow


async def test_flow_with_listed_times_completes_after_the_last(scheduler: Client, peers: Peers) -> None:
    first, second = "2035-01-01T00:00:00Z", "2035-01-02T00:00:00Z"
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(at=[second, first]))
    await scheduler.start()
    times = [at.ToJsonString() for at in peers.triggers.triggers["f"].schedule.times.at]
    assert times == [first, second]
    start = peers.triggers.triggers["f"].schedule.times.at[0].ToMilliseconds()
    assert not (await fire(peers, start)).finished
    await scheduler.ended()
    assert (await fire(peers, start + 24 * HOUR)).finished
    await until_status(scheduler, flow_pb2.FLOW_STATUS_COMPLETED)


async def until_status(scheduler: Client, status: "flow_pb2.FlowStatus.ValueType") -> None:
    async def reached() -> bool:
        return (await scheduler.flow()).status == status

    await until(reached, f"the flow is {flow_pb2.FlowStatus.Name(status)}")


async def test_schedule_in_the_past_is_refused(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(
        nodes=[flow_pb2.NodeSpec(id="a", type="t")], schedule=flow_pb2.ScheduleSpec(at=["2020-01-01T00:00:00Z"])
    )
    request = pb2.RegisterFlowRequest(flow_id="f", spec=spec)
    error = await refused(scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "has no times left: all of them have passed" in str(error)


async def test_existing_flow_whose_times_have_passed_can_be_registered_again(scheduler: Client) -> None:
    soon = datetime.fromtimestamp((now_ms() + 1500) / 1000, UTC).isoformat()
    nodes = [flow_pb2.NodeSpec(id="a", type="t")]
    spec = flow_pb2.FlowSpec(nodes=nodes, schedule=flow_pb2.ScheduleSpec(at=[soon]))
    flow = (await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))).flow

    async def over() -> bool:
        definition = flow_pb2.FlowDefinition(spec=spec)
        return bool((await scheduler.stub.AnalyzeFlow(pb2.AnalyzeFlowRequest(definition=definition))).violations)

    await until(over, "the time of the flow has passed")
    again = await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    assert (again.changed, again.flow.etag) == (False, flow.etag)
    assert "schedule" in {warning.path for warning in again.warnings}
    spec.nodes.add(id="b", type="t")
    plan = await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec, validate_only=True))
    assert (plan.changed, list(plan.plan.violations), list(plan.plan.next_times)) == (True, [], [])
    changed = await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    assert changed.flow.revision == 2
    other = pb2.RegisterFlowRequest(flow_id="g", spec=spec)
    await refused(scheduler.stub.RegisterFlow(other), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_flow_whose_schedule_is_over_cannot_be_started(scheduler: Client, peers: Peers) -> None:
    end = Timestamp(seconds=now_ms() // 1000 + HOUR)
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(interval="1h", end="2020-01-01T00:00:00Z"))
    start = scheduler.stub.StartFlow(pb2.StartFlowRequest(flow_id="f"))
    await refused(start, grpc.StatusCode.FAILED_PRECONDITION, "SCHEDULE_OVER")
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(interval="1h", end=end.ToJsonString()))
    late = scheduler.stub.StartFlow(pb2.StartFlowRequest(flow_id="f", start_at=end))
    await refused(late, grpc.StatusCode.FAILED_PRECONDITION, "SCHEDULE_OVER")
    assert "f" not in peers.triggers.triggers


async def test_starting_a_running_flow_after_its_end_changes_nothing(scheduler: Client) -> None:
    await register(scheduler, interval="1h")
    started = await scheduler.start()
    over = flow_pb2.ScheduleSpec(interval="1h", end="2020-01-01T00:00:00Z")
    await register(scheduler, schedule=over)
    again = await scheduler.start()
    assert (again.status, again.next_execution) == (flow_pb2.FLOW_STATUS_RUNNING, started.next_execution)


async def test_moving_the_end_before_the_next_time_completes_a_running_flow(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, interval="1h")
    due = (await scheduler.start()).next_execution.ToMilliseconds()
    await fire(peers, due)
    await scheduler.ended()
    end = Timestamp(seconds=due // 1000 + 60)
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(interval="1h", end=end.ToJsonString()))
    assert (await fire(peers, due + HOUR)).finished
    assert await firings(scheduler) == [("FIRED", 1)]
    assert (await scheduler.flow()).status == flow_pb2.FLOW_STATUS_COMPLETED


async def test_queued_cycle_begins_when_the_running_cycle_ends(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await register(scheduler, interval="1h", overlap=flow_pb2.OVERLAP_POLICY_QUEUE_ONE)
    await scheduler.start()
    due = now_ms()
    await fire(peers, due)
    await fire(peers, due + HOUR)
    assert await firings(scheduler) == [("QUEUED", 1), ("FIRED", 1)]
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the first cycle is submitted")
    await peers.node_tasks.finish(("f", 0, 0))
    await until(lambda: ("f", 1, 0) in peers.node_tasks.runs, "the second cycle is submitted")
    assert await firings(scheduler) == [("FIRED", 1), ("FIRED", 1)]
    cycle = (await scheduler.stub.GetCycle(pb2.GetCycleRequest(flow_id="f", cycle=1))).cycle
    assert cycle.planned_time.ToMilliseconds() == due + HOUR


async def test_cancel_running_cancels_the_running_cycle(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await register(scheduler, interval="1h", overlap=flow_pb2.OVERLAP_POLICY_CANCEL_RUNNING)
    await scheduler.start()
    due = now_ms()
    await fire(peers, due)
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the first cycle is submitted")
    await fire(peers, due + HOUR)
    await until(lambda: ("f", 1, 0) in peers.node_tasks.runs, "the second cycle is submitted")
    cycle = (await scheduler.stub.GetCycle(pb2.GetCycleRequest(flow_id="f", cycle=0))).cycle
    assert cycle.status == cycle_pb2.CYCLE_STATUS_CANCELLED


async def test_paused_flow_has_no_trigger_and_resumes_on_its_grid(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, interval="1h")
    started = await scheduler.start()
    flow = (await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", note="maintenance", by="ada"))).flow
    assert (flow.status, flow.pause.by, flow.pause.note) == (flow_pb2.FLOW_STATUS_PAUSED, "ada", "maintenance")
    assert not flow.HasField("next_execution")
    assert "f" not in peers.triggers.triggers
    assert (await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f"))).flow.pause == flow.pause
    resumed = (await scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))).flow
    assert resumed.status == flow_pb2.FLOW_STATUS_RUNNING
    assert not resumed.HasField("pause")
    passed = resumed.next_execution.ToMilliseconds() - started.next_execution.ToMilliseconds()
    assert passed % HOUR == 0
    assert peers.triggers.triggers["f"].schedule.interval.anchor == resumed.next_execution
    assert await firings(scheduler) == ([("SKIPPED", 1)] if passed else [])


@pytest.mark.parametrize("is_ahead", [True, False], ids=["ahead", "passed"])
async def test_time_is_skipped_by_a_pause_once_its_jitter_has_passed(
    scheduler: Client, peers: Peers, is_ahead: bool
) -> None:
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(interval="1h", jitter="1h"))
    since = now_ms() - 120_000
    fits: Callable[[int], bool] = (lambda delay: delay > 600_000) if is_ahead else (lambda delay: delay < 9_000)
    planned = next(at for at in range(since, since + 60_000) if fits(delay_ms("f", at, HOUR)))
    start = pb2.StartFlowRequest(flow_id="f")
    start.start_at.FromMilliseconds(planned)
    await scheduler.stub.StartFlow(start)
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f"))
    upcoming = await scheduler.stub.ListNextExecutions(pb2.ListNextExecutionsRequest(flow_id="f", count=1))
    resumed = (await scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))).flow
    assert resumed.next_execution.ToMilliseconds() == (planned if is_ahead else planned + HOUR)
    assert list(upcoming.planned_times) == [resumed.next_execution]
    assert peers.triggers.triggers["f"].schedule.interval.anchor == resumed.next_execution
    assert await firings(scheduler) == ([] if is_ahead else [("SKIPPED", 1)])


async def start_with_a_time_ahead(scheduler: Client) -> int:
    """Start a flow whose planned time has come, but not its jitter, and return that time."""
    since = now_ms() - 120_000
    planned = next(at for at in range(since, since + 60_000) if delay_ms("f", at, HOUR) > 600_000)
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(at=[iso(planned), iso(planned + HOUR)], jitter="1h"))
    start = pb2.StartFlowRequest(flow_id="f")
    start.start_at.FromMilliseconds(planned)
    await scheduler.stub.StartFlow(start)
    return planned


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


async def test_time_whose_jitter_is_ahead_stays_planned_when_the_new_schedule_plans_it(
    scheduler: Client, peers: Peers
) -> None:
    planned = await start_with_a_time_ahead(scheduler)
    schedule = flow_pb2.ScheduleSpec(at=[iso(planned)], jitter="30m")
    changed = await register(scheduler, schedule=schedule)
    assert changed.next_execution.ToMilliseconds() == planned
    assert [at.ToMilliseconds() for at in peers.triggers.triggers["f"].schedule.times.at] == [planned]
    assert await firings(scheduler) == []
    await fire(peers, planned)
    assert await firings(scheduler) == [("FIRED", 1)]


@pytest.mark.parametrize(
    "schedule",
    [flow_pb2.ScheduleSpec(at=["2035-01-01T00:00:00Z"]), flow_pb2.ScheduleSpec(event=EventSchedule(name="e"))],
    ids=["at other times", "on events"],
)
async def test_time_whose_jitter_is_ahead_is_dropped_when_the_new_schedule_does_not_plan_it(
    scheduler: Client, schedule: flow_pb2.ScheduleSpec
) -> None:
    planned = await start_with_a_time_ahead(scheduler)
    await register(scheduler, schedule=schedule)
    (line,) = (await scheduler.stub.ListFirings(pb2.ListFiringsRequest(flow_id="f"))).firings
    assert (line.planned_time.ToMilliseconds(), line.outcome, line.reason) == (
        planned,
        flow_pb2.FIRING_OUTCOME_DROPPED,
        "the schedule was changed",
    )


@pytest.mark.parametrize("is_paused", [True, False], ids=["paused", "running"])
async def test_times_that_have_come_are_on_record_when_a_flow_is_stopped(scheduler: Client, is_paused: bool) -> None:
    await register(scheduler, schedule=flow_pb2.ScheduleSpec(interval="1m"))
    start = pb2.StartFlowRequest(flow_id="f")
    start.start_at.FromMilliseconds(now_ms() - 150_000)
    await scheduler.stub.StartFlow(start)
    if is_paused:
        await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", by="ann"))
    await scheduler.stop()
    (line,) = (await scheduler.stub.ListFirings(pb2.ListFiringsRequest(flow_id="f"))).firings
    assert (line.planned_time, line.count) == (start.start_at, 3)
    dropped, skipped = flow_pb2.FIRING_OUTCOME_DROPPED, flow_pb2.FIRING_OUTCOME_SKIPPED
    reasons = (skipped, 'paused by "ann"') if is_paused else (dropped, "the flow was stopped")
    assert (line.outcome, line.reason) == reasons


async def test_flow_that_runs_once_keeps_its_time_through_a_pause(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, interval="0")
    start = pb2.StartFlowRequest(flow_id="f")
    start.start_at.FromMilliseconds(now_ms() + HOUR)
    await scheduler.stub.StartFlow(start)
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f"))
    resumed = (await scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))).flow
    assert resumed.next_execution == start.start_at
    assert peers.triggers.triggers["f"].schedule.once.at == start.start_at


@pytest.mark.parametrize(
    "fields", [{"interval": "0"}, {"schedule": flow_pb2.ScheduleSpec(interval="1h", max_cycles=1)}], ids=str
)
async def test_resuming_during_the_last_cycle_plans_no_other(
    scheduler: Client, peers: Peers, fields: dict[str, Any]
) -> None:
    peers.node_tasks.automatic = False
    await register(scheduler, **fields)
    await scheduler.start()
    await fire(peers, now_ms())
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the cycle is submitted")
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f"))
    upcoming = pb2.ListNextExecutionsRequest(flow_id="f")
    assert not (await scheduler.stub.ListNextExecutions(upcoming)).planned_times
    resumed = (await scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))).flow
    assert resumed.status == flow_pb2.FLOW_STATUS_RUNNING
    assert not resumed.HasField("next_execution")
    assert not (await scheduler.stub.ListNextExecutions(upcoming)).planned_times
    assert "f" not in peers.triggers.triggers
    await peers.node_tasks.finish(("f", 0, 0))
    await until_status(scheduler, flow_pb2.FLOW_STATUS_COMPLETED)


async def test_only_running_flows_are_paused_and_only_paused_flows_resumed(scheduler: Client) -> None:
    await register(scheduler, interval="1h")
    pause = scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f"))
    await refused(pause, grpc.StatusCode.FAILED_PRECONDITION, "FLOW_NOT_RUNNING")
    resume = scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))
    await refused(resume, grpc.StatusCode.FAILED_PRECONDITION, "FLOW_NOT_PAUSED")


async def test_lists_of_unknown_flows_and_of_too_many_times_are_refused(scheduler: Client) -> None:
    await register(scheduler, interval="1h")
    nobody = scheduler.stub.ListFirings(pb2.ListFiringsRequest(flow_id="nobody"))
    await refused(nobody, grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    many = scheduler.stub.ListNextExecutions(pb2.ListNextExecutionsRequest(flow_id="f", count=1001))
    await refused(many, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_consecutive_failures_pause_a_flow(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await register(scheduler, interval="1h", pause_after_failures=1)
    await scheduler.start()
    await fire(peers, now_ms())
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the cycle is submitted")
    await peers.node_tasks.finish(("f", 0, 0), sinks_completed=0, failed=1)
    await until_status(scheduler, flow_pb2.FLOW_STATUS_PAUSED)
    await until(lambda: "f" not in peers.triggers.triggers, "the trigger is gone")
    assert (await scheduler.flow()).pause.by == "system"
    await until(lambda: peers.node_tasks.notifications, "the user is notified")
    (notification,) = peers.node_tasks.notifications
    assert notification.kind == notification_pb2.NOTIFICATION_KIND_FLOW_PAUSED
    assert (notification.subject.flow_id, notification.subject.cycle, notification.user_id) == ("f", 0, "default")
    assert notification.title == 'flow "f" is paused until somebody resumes it'
    assert notification.message.startswith("paused because cycle 0 failed")


async def test_user_is_notified_of_a_flow_that_paused_itself_when_the_node_task_manager_is_back(
    scheduler: Client, peers: Peers
) -> None:
    peers.node_tasks.automatic = False
    await register(scheduler, interval="1h", pause_after_failures=1)
    await scheduler.start()
    await fire(peers, now_ms())
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the cycle is submitted")
    peers.node_tasks.refused_notifications = 2
    await peers.node_tasks.finish(("f", 0, 0), sinks_completed=0, failed=1)
    await until(lambda: peers.node_tasks.notifications, "the user is notified")
    assert peers.node_tasks.refused_notifications == 0
    assert (await scheduler.flow()).status == flow_pb2.FLOW_STATUS_PAUSED
    assert {each.key for each in peers.node_tasks.notifications} != {""}


async def test_nobody_is_notified_of_a_flow_that_somebody_pauses(scheduler: Client, peers: Peers) -> None:
    await register(scheduler, interval="1h", pause_after_failures=1)
    await scheduler.start()
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", note="rates are wrong"))
    await until(lambda: "f" not in peers.triggers.triggers, "the trigger is gone")
    assert not peers.node_tasks.notifications
