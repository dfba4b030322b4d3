"""Starting and stopping flows, due triggers, the outbox."""

import time

import grpc

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.waiting import until
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def answered(peers: Peers, token: str) -> trigger_service_pb2.DueTriggerAck:
    """Wait until a due trigger is answered."""
    await until(lambda: peers.triggers.answer(token), f"trigger {token} is answered")
    answer = peers.triggers.answer(token)
    assert isinstance(answer, trigger_service_pb2.DueTriggerAck), answer
    return answer


async def test_starting_saves_a_trigger_on_a_grid_from_now(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    flow = await scheduler.start()
    assert flow.status == flow_pb2.FLOW_STATUS_RUNNING
    trigger = peers.triggers.triggers["f"]
    assert trigger.partition_key == "f"
    assert trigger.schedule.interval.interval.seconds == 60
    assert trigger.schedule.interval.anchor == flow.next_execution
    assert abs(flow.next_execution.ToMilliseconds() - now_ms()) < 5000


async def test_starting_may_name_the_first_time(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    request = pb2.StartFlowRequest(flow_id="f")
    request.start_at.FromSeconds(2_000_000_000)
    flow = (await scheduler.stub.StartFlow(request)).flow
    assert flow.next_execution.seconds == 2_000_000_000
    assert peers.triggers.triggers["f"].schedule.interval.anchor.seconds == 2_000_000_000


async def test_repeated_start_and_stop_change_nothing(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    first = await scheduler.start()
    saves = peers.triggers.saves
    assert await scheduler.start() == first
    assert peers.triggers.triggers["f"].epoch == peers.triggers.epochs["f"]
    assert peers.triggers.saves <= saves + 1
    stopped = await scheduler.stop()
    assert stopped.status == flow_pb2.FLOW_STATUS_STOPPED
    assert not stopped.HasField("next_execution")
    assert "f" not in peers.triggers.triggers
    assert await scheduler.stop() == stopped


async def test_a_due_flow_begins_a_cycle_and_is_due_next_on_the_grid(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    planned = now_ms() - 3 * 60_000 - 5
    (token,) = peers.triggers.fire(["f"], planned)
    ack = await answered(peers, token)
    assert ack.next_fire_time.ToMilliseconds() == planned + 4 * 60_000
    cycle = await scheduler.ended()
    assert cycle.origin == cycle_pb2.CYCLE_ORIGIN_SCHEDULE
    latest = planned + 3 * 60_000
    assert cycle.planned_time.ToMilliseconds() == latest
    assert peers.node_tasks.runs["f", 0, 0].submission.planned_time.ToMilliseconds() == latest
    assert (await scheduler.flow()).next_execution == ack.next_fire_time


async def test_repeated_planned_time_begins_one_cycle(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    planned = now_ms()
    tokens = [peers.triggers.fire(["f"], planned)[0] for _ in range(3)]
    acks = [await answered(peers, token) for token in tokens]
    assert {ack.next_fire_time.ToMilliseconds() for ack in acks} == {planned + 60_000}
    await scheduler.ended()
    assert (await scheduler.flow()).last_cycle == 0


async def test_flows_due_together_are_submitted_together(scheduler: Client, peers: Peers) -> None:
    flows = [f"flow-{number}" for number in range(60)]
    for flow_id in flows:
        await scheduler.register(flow_id)
        await scheduler.start(flow_id)
    for token in peers.triggers.fire(flows, now_ms()):
        await answered(peers, token)
    for flow_id in flows:
        assert (await scheduler.ended(flow_id)).status == cycle_pb2.CYCLE_STATUS_COMPLETED
    assert len(peers.node_tasks.requests) <= 4


async def test_triggers_of_stopped_unknown_and_rescheduled_flows_are_finished(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    old = peers.triggers.epochs["f"]
    await scheduler.stop()
    (token,) = peers.triggers.fire(["f"], now_ms())
    assert (await answered(peers, token)).finished
    await scheduler.start()
    (token,) = peers.triggers.fire(["f"], now_ms(), epoch=old)
    assert (await answered(peers, token)).finished
    (token,) = peers.triggers.fire(["unknown"], now_ms())
    assert (await answered(peers, token)).finished
    assert (await scheduler.flow()).last_cycle == -1


async def test_a_flow_that_runs_once_completes_and_may_be_started_again(scheduler: Client, peers: Peers) -> None:
    await scheduler.register("f", interval="0")
    flow = await scheduler.start()
    assert peers.triggers.triggers["f"].schedule.once.at == flow.next_execution
    (token,) = peers.triggers.fire(["f"], now_ms())
    assert (await answered(peers, token)).finished
    await scheduler.ended()
    flow = await scheduler.flow()
    assert flow.status == flow_pb2.FLOW_STATUS_COMPLETED
    assert not flow.HasField("next_execution")
    assert (await scheduler.start()).status == flow_pb2.FLOW_STATUS_RUNNING
    (token,) = peers.triggers.fire(["f"], now_ms() + 1)
    await answered(peers, token)
    await scheduler.ended(cycle=1)


async def test_trigger_of_a_flow_that_runs_once_is_retried_during_overlap(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", interval="0", overlap=flow_pb2.OVERLAP_POLICY_SKIP)
    await scheduler.run(wait=0)
    await scheduler.start()
    (token,) = peers.triggers.fire(["f"], now_ms())
    await until(lambda: peers.triggers.answer(token), "the trigger is answered")
    answer = peers.triggers.answer(token)
    assert isinstance(answer, trigger_service_pb2.DueTriggerNack)
    assert answer.retry_after.ToMilliseconds() > 0


async def test_overlap_skip_begins_no_cycle_while_one_runs(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", overlap=flow_pb2.OVERLAP_POLICY_SKIP)
    await scheduler.start()
    planned = now_ms()
    for number in range(3):
        (token,) = peers.triggers.fire(["f"], planned + number * 60_000)
        ack = await answered(peers, token)
        assert ack.next_fire_time.ToMilliseconds() == planned + (number + 1) * 60_000
    assert (await scheduler.flow()).last_cycle == 0


async def test_stopping_a_flow_stops_its_running_cycle(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "a", "b", edges="a>b")
    await scheduler.start()
    (token,) = peers.triggers.fire(["f"], now_ms())
    await answered(peers, token)
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the cycle is submitted")
    await scheduler.stop(reason="enough", by="ada")
    cycle = await scheduler.ended()
    assert cycle.status == cycle_pb2.CYCLE_STATUS_CANCELLED
    assert cycle.reason == "enough (1 terminated, 1 skipped of 2 nodes)"
    stop = peers.node_tasks.stops[0]
    assert (stop.flow_id, stop.cycle, stop.run_id, stop.reason, stop.by) == ("f", 0, cycle.run_id, "enough", "ada")
    assert (await scheduler.flow()).status == flow_pb2.FLOW_STATUS_STOPPED
    assert "Stopping: enough" in await scheduler.lines()


async def test_stop_is_retried_until_the_cycle_has_ended(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    await peers.node_tasks.go_down()
    await scheduler.stop()
    assert peers.node_tasks.stops == []
    await peers.node_tasks.come_up()
    assert (await scheduler.ended()).status == cycle_pb2.CYCLE_STATUS_CANCELLED


async def test_a_running_flow_follows_its_new_interval(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    epoch = peers.triggers.epochs["f"]
    flow = await scheduler.register("f", "a", interval="5")
    assert flow.status == flow_pb2.FLOW_STATUS_RUNNING
    trigger = peers.triggers.triggers["f"]
    assert trigger.schedule.interval.interval.seconds == 5
    assert trigger.epoch > epoch


async def test_trigger_is_saved_once_the_trigger_service_is_back(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.triggers.down = True
    flow = await scheduler.start()
    assert flow.status == flow_pb2.FLOW_STATUS_RUNNING
    assert "f" not in peers.triggers.triggers
    peers.triggers.down = False
    await until(lambda: "f" in peers.triggers.triggers, "the outbox is settled", timeout=30)


async def test_schedule_epoch_is_raised_past_that_of_the_trigger_service(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    peers.triggers.epochs["f"] = now_ms() + 50
    await scheduler.start()
    await until(lambda: "f" in peers.triggers.triggers, "the trigger is saved under a higher epoch", timeout=30)


async def test_too_long_stop_reason_is_refused(scheduler: Client) -> None:
    await scheduler.register()
    call = scheduler.stop(reason="x" * 1025)
    await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_restarted_scheduler_continues_running_flows(start: Start, peers: Peers) -> None:
    first = await start()
    await until(lambda: peers.triggers.listens("f"), "the first listens")
    await first.register()
    await first.start()
    await first.run()
    await first.server.stop()
    await until(lambda: not peers.triggers.listens("f"), "the first has gone")
    second = await start()
    await until(lambda: peers.triggers.listens("f"), "the second listens")
    assert (await second.flow()).status == flow_pb2.FLOW_STATUS_RUNNING
    (token,) = peers.triggers.fire(["f"], now_ms())
    await answered(peers, token)
    assert (await second.ended(cycle=1)).status == cycle_pb2.CYCLE_STATUS_COMPLETED


async def test_user_is_notified_once_of_each_stop(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    await scheduler.stub.StopFlow(pb2.StopFlowRequest(flow_id="f", reason="wrong prices"))
    await until(lambda: peers.node_tasks.notifications, "the user is notified")
    (notification,) = peers.node_tasks.notifications
    assert (notification.title, notification.subject.flow_id, notification.user_id) == (
        'flow "f" was stopped',
        "f",
        "default",
    )
    assert notification.message.endswith(": wrong prices")
    await scheduler.stub.StopFlow(pb2.StopFlowRequest(flow_id="f", reason="again"))
    await scheduler.start()
    await scheduler.stub.StopFlow(pb2.StopFlowRequest(flow_id="f", reason="once more"))
    await until(lambda: len(peers.node_tasks.notifications) > 1, "the user is notified of the second stop")
    assert [each.message for each in peers.node_tasks.notifications] == [
        'by "user": wrong prices',
        'by "user": once more',
    ]


async def test_user_is_notified_of_a_stop_when_the_node_task_manager_is_back(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    peers.node_tasks.refused_notifications = 2
    await scheduler.stop(by="ann")
    await until(lambda: peers.node_tasks.notifications, "the user is notified")
    assert peers.node_tasks.refused_notifications == 0
    assert [each.message for each in peers.node_tasks.notifications] == ['by "ann"']


async def test_stop_without_a_reason_names_only_who_stopped_the_flow(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    stopped = await scheduler.stop(by="default")
    assert (stopped.stop.by, stopped.stop.reason) == ("default", "")
    await until(lambda: peers.node_tasks.notifications, "the user is notified")
    assert peers.node_tasks.notifications[0].message == 'by "default"'
