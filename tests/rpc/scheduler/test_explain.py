"""ExplainFlow and ExplainNode: the scheduler's own reasons, each in a state that the test has brought about."""

from datetime import datetime
from typing import Any

import grpc
import pytest

from tests.no_writes import REFUSALS, refusing_writes
from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.rpc.scheduler.explanations import explain_flow, explain_node, set_node_reasons, submitted
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.reasons import iso
from tradewind.trigger.domain.schedule import Once, Schedule


async def test_flow_never_started_shows_not_started(scheduler: Client) -> None:
    await scheduler.register()
    assert list(await explain_flow(scheduler)) == ["not_started"]


async def test_running_flow_shows_its_next_time(scheduler: Client) -> None:
    await scheduler.register()
    await scheduler.start()
    found = await explain_flow(scheduler)
    assert list(found) == ["next_tick"]
    assert found["next_tick"][1]["at"].endswith("Z")


async def test_next_time_of_a_flow_with_jitter_tells_the_moment_that_its_trigger_has_chosen(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(schedule=flow_pb2.ScheduleSpec(interval="1h", jitter="30m"))
    spec.nodes.add(id="a", type="noop")
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    await scheduler.start()
    sentence, facts = (await explain_flow(scheduler))["next_tick"]
    planned_ms = round(datetime.fromisoformat(facts["at"]).timestamp() * 1000)
    due_ms = Schedule(Once(planned_ms), 30 * 60_000).delivery_ms("f", planned_ms)
    assert sentence == f"the next cycle is planned for {facts['at']}, with its jitter for {iso(due_ms)}"
    assert (facts["jitter"], facts["late"]) == (1800, 0)


async def test_open_run_without_record_is_left_out(scheduler: Client, peers: Peers, embedded: RedisServer) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await scheduler.run(wait=0)
    await submitted(peers, 1)
    await embedded.connect().delete(Keys().run("f", 0, 0))
    assert (await explain_flow(scheduler))["cycle_running"][1]["cycle"] == 1
    await embedded.connect().delete(Keys().run("f", 1, 0))
    assert list(await explain_flow(scheduler)) == ["not_started"]


async def test_overdue_time_is_shown_with_its_delay(scheduler: Client) -> None:
    await scheduler.register("f", interval="1")
    await scheduler.start()
    tick: tuple[str, dict[str, Any]] = ("", {})

    async def late() -> bool:
        nonlocal tick
        tick = (await explain_flow(scheduler))["next_tick"]
        return "was planned" in tick[0]

    await until(late, "the time is shown as late")
    sentence, facts = tick
    assert sentence == f"a cycle was planned for {facts['at']} and has still not begun, {facts['late']:g} s later"


async def test_paused_flow_shows_actor_time_and_note(scheduler: Client) -> None:
    await scheduler.register()
    await scheduler.start()
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", by="ann", note="rates are wrong"))
    found = await explain_flow(scheduler)
    assert list(found) == ["paused"]
    sentence, facts = found["paused"]
    assert (facts["by"], facts["note"]) == ("ann", "rates are wrong")
    assert sentence == f'paused by "ann" at {facts["since"]}: rates are wrong; resume it to let cycles begin'


async def test_flow_paused_after_failures_shows_their_number(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", pause_after_failures=2)
    await scheduler.start()
    peers.node_tasks.automatic = False
    for _ in range(2):
        number = (await scheduler.run(wait=0)).cycle
        await submitted(peers, number)
        await peers.node_tasks.finish(("f", number, 0), sinks_completed=0, failed=1)
        await scheduler.ended("f", number)
    found = await explain_flow(scheduler)
    assert next(iter(found)) == "paused_after_failures"
    facts = found["paused_after_failures"][1]
    assert (facts["failures"], facts["last_cycle"], facts["by"]) == (2, 1, "system")


async def test_pause_with_a_note_about_failures_is_not_a_pause_after_failures(scheduler: Client) -> None:
    await scheduler.register()
    await scheduler.start()
    note = "paused after 2 failed cycles in a row, the last of which was cycle 1"
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", by="system", note=note))
    assert list(await explain_flow(scheduler)) == ["paused"]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_read_only_store_is_shown_as_a_reason_for_flows_and_nodes(
    scheduler: Client, peers: Peers, embedded: RedisServer, refusal: str
) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await submitted(peers)
    set_node_reasons(peers, ("running", "runs"))
    async with refusing_writes(embedded, refusal):
        found = await explain_flow(scheduler)
        assert list(found) == ["store_takes_no_writes", "not_started", "cycle_running"]
        assert found["store_takes_no_writes"] == (
            f"{refusal}; nothing can begin or end until it accepts writes again",
            {"why": refusal},
        )
        assert list(await explain_node(scheduler)) == ["store_takes_no_writes", "running"]
        # Both services may use the same store, so it is reported once.
        set_node_reasons(peers, ("store_takes_no_writes", "its own"), ("running", "runs"))
        assert {code: sentence for code, (sentence, _) in (await explain_node(scheduler)).items()} == {
            "store_takes_no_writes": "its own",
            "running": "runs",
        }
    set_node_reasons(peers, ("running", "runs"))
    assert list(await explain_flow(scheduler)) == ["not_started", "cycle_running"]
    assert list(await explain_node(scheduler)) == ["running"]


async def test_stopped_flow_shows_actor_and_reason_of_the_first_stop(scheduler: Client) -> None:
    await scheduler.register()
    await scheduler.start()
    stopped = await scheduler.stop(by="ann", reason="rates are wrong")
    assert (stopped.stop.by, stopped.stop.reason) == ("ann", "rates are wrong")
    again = await scheduler.stop(by="bob", reason="me too")
    assert again.stop == stopped.stop == (await scheduler.flow()).stop
    found = await explain_flow(scheduler)
    # Nobody had begun a cycle for the time of its start.
    assert list(found) == ["stopped", "tick_dropped"]
    sentence, facts = found["stopped"]
    assert (facts["by"], facts["why"]) == ("ann", "rates are wrong")
    assert sentence == f'stopped by "ann" at {facts["at"]}: rates are wrong; start it to let cycles begin'
    assert not (await scheduler.start()).HasField("stop")


async def test_schedule_that_has_not_begun_shows_its_start(scheduler: Client) -> None:
    schedule = flow_pb2.ScheduleSpec(interval="60s", start="2096-10-02T07:06:40Z")
    spec = flow_pb2.FlowSpec(schedule=schedule)
    spec.nodes.add(id="a", type="noop")
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    await scheduler.start()
    found = await explain_flow(scheduler)
    assert list(found) == ["outside_window", "next_tick"]
    assert found["outside_window"][1]["start"] == "2096-10-02T07:06:40.000Z"


async def test_flow_being_deleted_shows_deleting(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.triggers.down = True
    await scheduler.stub.DeleteFlow(pb2.DeleteFlowRequest(flow_id="f"))
    assert list(await explain_flow(scheduler)) == ["deleting"]
    peers.triggers.down = False


async def test_finished_schedule_shows_schedule_over(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", interval="0")
    await scheduler.start()
    due_ms = (await scheduler.flow()).next_execution.ToMilliseconds()
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved")
    peers.node_tasks.automatic = False
    peers.triggers.fire(["f"], due_ms)
    await submitted(peers)
    found = await explain_flow(scheduler)
    assert list(found) == ["schedule_over", "cycle_running"]
    await peers.node_tasks.finish(("f", 0, 0))
    await scheduler.ended()
    assert (await explain_flow(scheduler))["schedule_over"][1]["status"] == "completed"


async def test_missed_time_shows_tick_missed(scheduler: Client, peers: Peers) -> None:
    spec = flow_pb2.FlowSpec(schedule={"interval": "1h", "catch_up": flow_pb2.CATCH_UP_NONE})  # type: ignore[arg-type]
    spec.nodes.add(id="a", type="noop")
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))
    await scheduler.start()
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved")
    peers.triggers.fire(["f"], (await scheduler.flow()).next_execution.ToMilliseconds() - 1_800_000)

    async def is_shown() -> bool:
        return "tick_missed" in await explain_flow(scheduler)

    await until(is_shown, "the planned time was judged")
    assert (await explain_flow(scheduler))["tick_missed"][0].endswith(" was missed: found due too late")


async def test_running_and_stopping_cycles_are_shown(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0)
    await submitted(peers)
    assert "cycle_running" in await explain_flow(scheduler)
    # The scheduler does not learn that the cycle has stopped.
    peers.node_tasks.withholds_events = True
    await scheduler.start()
    await scheduler.stop(by="ann", reason="enough")
    found = await explain_flow(scheduler)
    assert list(found)[:2] == ["stopped", "stopping"]
    assert (found["stopping"][1]["by"], found["stopping"][1]["why"]) == ("ann", "enough")
    assert next(iter(await explain_node(scheduler))) == "stopping"


async def test_unsubmitted_cycle_waits_for_the_node_task_manager(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.node_tasks.down = True
    await scheduler.run(wait=0)
    assert "waits_for_node_task_manager" in await explain_flow(scheduler)


@pytest.mark.parametrize(
    ("overlap", "code"),
    [
        (flow_pb2.OVERLAP_POLICY_SKIP, "tick_skipped"),
        (flow_pb2.OVERLAP_POLICY_QUEUE_ONE, "tick_queued"),
        (flow_pb2.OVERLAP_POLICY_QUEUE_ONE, "tick_dropped"),
    ],
)
async def test_effect_of_the_overlap_policy_on_the_latest_time_is_shown(
    scheduler: Client, peers: Peers, overlap: flow_pb2.OverlapPolicy, code: str
) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", overlap=overlap)
    await scheduler.start()
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved")
    due_ms = (await scheduler.flow()).next_execution.ToMilliseconds()
    await scheduler.run(wait=0)
    for place in range(2 if code == "tick_dropped" else 1):
        peers.triggers.fire(["f"], due_ms + place)

    async def is_shown() -> bool:
        return code in await explain_flow(scheduler)

    await until(is_shown, "the planned time was judged")
    found = await explain_flow(scheduler)
    assert found[code][1]["why"].startswith("cycle 0 was running")
    assert f" (overlap {found[code][1]['policy']})" in found[code][0]
    assert "cycle_running" in found


async def test_overlap_is_not_named_for_a_time_that_a_pause_dropped(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", overlap=flow_pb2.OVERLAP_POLICY_QUEUE_ONE)
    await scheduler.start()
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved")
    due_ms = (await scheduler.flow()).next_execution.ToMilliseconds()
    await scheduler.run(wait=0)
    peers.triggers.fire(["f"], due_ms)

    async def is_queued() -> bool:
        return "tick_queued" in await explain_flow(scheduler)

    await until(is_queued, "the planned time was judged")
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f"))
    await scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))
    assert (await explain_flow(scheduler))["tick_dropped"][0].endswith(" was dropped: the flow was paused")


async def test_failed_latest_cycle_is_shown_until_a_cycle_completes(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a")
    await scheduler.run(wait=0)
    await submitted(peers)
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="no luck")
    failed = node_task_pb2.NodeTask(node_id="a", status=node_task_pb2.NODE_TASK_STATUS_FAILED, error=error)
    peers.node_tasks.nodes["f", 0, 0] = [failed]
    await peers.node_tasks.finish(("f", 0, 0), sinks_completed=0, failed=1)
    await scheduler.ended()
    found = await explain_flow(scheduler)
    assert list(found) == ["not_started", "last_cycle_failed"]
    sentence, facts = found["last_cycle_failed"]
    assert sentence.startswith("cycle 0 ended as failed at ")
    assert sentence.endswith('node "a": NODE_ERROR: no luck')
    assert (facts["cycle"], facts["run"], facts["status"]) == (0, 0, "failed")
    peers.node_tasks.automatic = True
    await scheduler.run()
    assert list(await explain_flow(scheduler)) == ["not_started"]


async def test_unknown_flow_cycle_or_node_is_not_found(scheduler: Client) -> None:
    await refused(explain_flow(scheduler), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    await scheduler.register()
    await scheduler.run()
    error = await refused(explain_node(scheduler, "A"), grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")
    assert error.message == 'no node task "f:0:0:A"; did you mean "a"?'
    await refused(explain_node(scheduler, cycle=7), grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")
