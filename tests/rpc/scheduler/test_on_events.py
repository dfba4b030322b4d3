"""Flows that begin on events, over gRPC: a scheduler and a trigger service are both running."""

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest_asyncio

from tests.rpc.scheduler.conftest import Client, Start
from tests.rpc.scheduler.errors import refused
from tests.rpc.scheduler.explanations import explain_flow
from tests.rpc.scheduler.test_doctor import run_doctor
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import backfill_pb2, flow_pb2, revision_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as trigger_pb2_service
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as trigger_grpc
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.partitions import partition_of
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings

ON_PRICE = flow_pb2.ScheduleSpec(
    event=trigger_pb2.EventSchedule(name="price", filter_json='{"symbol": "AAPL"}'),
)


class Stage:
    """A scheduler, and the trigger service that it calls."""

    def __init__(self, scheduler: Client, triggers: "trigger_grpc.TriggerServiceAsyncStub") -> None:
        self.scheduler = scheduler
        self.triggers = triggers

    async def register(
        self, flow_id: str, schedule: flow_pb2.ScheduleSpec, user_id: str = "", **fields: Any
    ) -> pb2.RegisterFlowResponse:
        spec = flow_pb2.FlowSpec(nodes=[flow_pb2.NodeSpec(id="a", type="t")], schedule=schedule, **fields)
        request = pb2.RegisterFlowRequest(flow_id=flow_id, spec=spec, user_id=user_id)
        return await self.scheduler.stub.RegisterFlow(request)

    async def start(self, flow_id: str = "f") -> None:
        """Start a flow, and wait until the trigger service listens for it."""
        await self.scheduler.start(flow_id)
        await until(lambda: self.listens(flow_id), f"the trigger service listens for {flow_id}")

    async def listens(self, flow_id: str = "f") -> bool:
        request = trigger_pb2_service.FindTriggerRequest(trigger_id=flow_id, partition_key=flow_id)
        try:
            found = await self.triggers.FindTrigger(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return False
        return found.trigger.status == trigger_pb2.TRIGGER_STATUS_WAITING

    async def publish(self, event_id: str, symbol: str = "AAPL") -> trigger_pb2_service.PublishEventResponse:
        payload = json.dumps({"symbol": symbol})
        request = trigger_pb2_service.PublishEventRequest(name="price", event_id=event_id, payload_json=payload)
        return await self.triggers.PublishEvent(request)

    async def firings(self, flow_id: str = "f") -> list[tuple[str, str, int | None]]:
        """Event, outcome and cycle, the latest first."""
        response = await self.scheduler.stub.ListFirings(pb2.ListFiringsRequest(flow_id=flow_id))
        return [
            (
                line.event_id,
                flow_pb2.FiringOutcome.Name(line.outcome).rpartition("_")[2].lower(),
                line.cycle if line.HasField("cycle") else None,
            )
            for line in response.firings
        ]

    async def wait_for_firings(self, expected: list[tuple[str, str, int | None]]) -> None:
        """Wait until the ledger has these firings."""

        async def ledger_matches() -> bool:
            return await self.firings() == expected

        await until(ledger_matches, f"the ledger says {expected}")


@pytest_asyncio.fixture
async def stage(start: Start, embedded: RedisServer) -> AsyncIterator[Stage]:
    server = Server([TriggerService(TriggerSettings(store_url=embedded.url("trigger")))], drain_s=1)
    await server.start()
    channel = open_channel(server.address)
    # Asking would tell it only late that somebody listens for ends: it must find out by itself.
    scheduler = await start(trigger_address=server.address, scheduler_listeners_seconds=600)
    yield Stage(scheduler, trigger_grpc.TriggerServiceStub(channel))
    await channel.close()
    await server.stop()


def finished(*flow_ids: str, statuses: tuple[str, ...] = ()) -> flow_pb2.ScheduleSpec:
    return flow_pb2.ScheduleSpec(flow_finished=trigger_pb2.FlowFinishedSchedule(flow_ids=flow_ids, statuses=statuses))


async def test_each_matching_event_begins_one_cycle(stage: Stage) -> None:
    scheduler = stage.scheduler
    await stage.register("f", ON_PRICE)
    await stage.start()
    flow = await scheduler.flow()
    assert flow.begins_on == 'event "price" with {"symbol":"AAPL"}'
    assert not flow.HasField("next_execution")
    assert (await stage.publish("quote 7")).fired == 1
    assert (await stage.publish("quote 8", "MSFT")).matched == 0
    await stage.wait_for_firings([("quote 7", "fired", 0)])
    cycle = await scheduler.ended()
    assert json.loads(cycle.inputs_json) == {"symbol": "AAPL", "event": {"id": "quote 7", "name": "price"}}
    assert (await stage.publish("quote 7")).duplicates == 1
    assert (await stage.publish("quote 9")).fired == 1
    await stage.wait_for_firings([("quote 9", "fired", 1), ("quote 7", "fired", 0)])


async def test_flow_shows_the_event_it_waits_for(stage: Stage) -> None:
    stub = stage.scheduler.stub
    await stage.register("f", ON_PRICE)
    await stage.start()
    upcoming = await stub.ListNextExecutions(pb2.ListNextExecutionsRequest(flow_id="f"))
    assert (list(upcoming.planned_times), upcoming.begins_on) == ([], 'event "price" with {"symbol":"AAPL"}')
    sentence, _ = (await explain_flow(stage.scheduler))["waits_for_event"]
    assert sentence == 'waits for event "price" with {"symbol":"AAPL"}; none has come yet'
    await stage.publish("quote 7")
    await stage.wait_for_firings([("quote 7", "fired", 0)])
    await stage.scheduler.ended()
    sentence, facts = (await explain_flow(stage.scheduler))["waits_for_event"]
    assert sentence.endswith(f"; the flow's last event came at {facts['last_at']}, and began a cycle")
    assert (facts["event"], facts["last_event_id"], facts["last_outcome"]) == ("price", "quote 7", "fired")


async def test_explanation_says_which_flows_before_it_will_not_end(stage: Stage) -> None:
    await stage.register("desk", ON_PRICE)
    await stage.register("theirs", ON_PRICE, user_id="ann")
    await stage.register("f", finished("desk", "theirs", "dsek"))
    await stage.scheduler.start()

    async def sentence() -> str:
        return (await explain_flow(stage.scheduler))["waits_for_event"][0].partition("; none has come yet")[2]

    rest = '; flow "theirs" belongs to another user, so its ends do not count'
    rest += '; flow "dsek" is not registered; did you mean "desk"?'
    assert await sentence() == '; flow "desk" was never started' + rest
    await stage.scheduler.start("desk")
    assert await sentence() == rest
    await stage.scheduler.stop("desk")
    assert await sentence() == '; flow "desk" is stopped' + rest


async def test_plan_shows_the_event_a_flow_would_begin_on(stage: Stage) -> None:
    spec = flow_pb2.FlowSpec(nodes=[flow_pb2.NodeSpec(id="a", type="t")], schedule=ON_PRICE)
    request = pb2.RegisterFlowRequest(flow_id="f", spec=spec, validate_only=True)
    plan = (await stage.scheduler.stub.RegisterFlow(request)).plan
    assert (list(plan.next_times), plan.begins_on) == ([], 'event "price" with {"symbol":"AAPL"}')


async def test_end_of_one_flow_begins_another(stage: Stage) -> None:
    scheduler = stage.scheduler
    await scheduler.register("prices")
    await stage.register("report", finished("prices", statuses=("completed",)))
    await stage.start("report")
    ended: dict[str, int] = {}

    async def cycle_begun() -> bool:
        # Soon the scheduler hears that its own trigger is saved; from then on it reports ends.
        cycle = await scheduler.run("prices")
        ended[cycle.run_id] = cycle.cycle
        return bool(await stage.firings("report"))

    await until(cycle_begun, "an end has begun a cycle")
    (event_id, _, _), *_ = reversed(await stage.firings("report"))
    inputs = json.loads((await scheduler.ended("report")).inputs_json)
    assert (inputs["flow_id"], inputs["cycle"], inputs["status"]) == ("prices", ended[event_id], "completed")
    assert inputs["event"] == {"id": event_id, "name": "flow.finished"}


async def test_loop_of_flows_is_refused_on_register_update_and_rollback(stage: Stage) -> None:
    scheduler = stage.scheduler
    answer = await stage.register("a", finished("b"))
    (warning,) = [each for each in answer.warnings if each.path.startswith("schedule")]
    assert warning.path == "schedule.flow_finished.flow_ids[0]"
    assert warning.message == 'flow "b" is not registered; its ends begin nothing until it is'
    await stage.register("b", finished("c"))
    for made, way in ((finished("x", "a"), "c -> b -> a -> c"), (finished("c"), "c -> c")):
        error = await refused(stage.register("c", made), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
        sentence = "a flow may not begin on its own end, neither directly nor through others"
        assert [message for _, message in error.violations] == [f"{sentence}: {way}"]
    await scheduler.register("c")
    update = revision_pb2.UpdateFlowRequest(flow_id="c", spec=flow_pb2.FlowSpec(schedule=finished("a")))
    update.update_mask.paths.append("schedule")
    error = await refused(scheduler.stub.UpdateFlow(update), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "c -> b -> a -> c" in str(error.violations)
    # The schedule of an older revision was no loop when it was made, but may be one by now.
    await stage.register("b", flow_pb2.ScheduleSpec(interval="1h"))
    await stage.register("c", finished("a"))
    request = revision_pb2.RollBackFlowRequest(flow_id="b", revision=1)
    error = await refused(scheduler.stub.RollBackFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "b -> a -> c -> b" in str(error.violations)


async def test_ends_of_another_users_flow_begin_nothing(stage: Stage) -> None:
    scheduler = stage.scheduler
    await scheduler.register("prices", user_id="ann")
    await stage.register("ours", finished("prices"), user_id="ann")
    answer = await stage.register("theirs", finished("prices"), user_id="bob")
    (warning,) = [each for each in answer.warnings if each.path.startswith("schedule")]
    assert (warning.path, warning.message) == (
        "schedule.flow_finished.flow_ids[0]",
        'flow "prices" belongs to another user; only ends of the same user\'s flows count',
    )
    for flow_id in ("theirs", "ours"):
        await stage.start(flow_id)

    async def end_has_begun(flow_id: str) -> bool:
        await scheduler.run("prices")
        return bool(await stage.firings(flow_id))

    await until(lambda: end_has_begun("ours"), "an end has begun a cycle of the same user")
    assert await stage.firings("theirs") == []
    # With its schedule as it was, the flow listens for the ends of its new owner's flows.
    await stage.register("theirs", finished("prices"), user_id="ann")
    await until(lambda: end_has_begun("theirs"), "an end has begun a cycle of the flow that changed hands")


async def test_flows_of_other_users_close_no_loop_and_are_not_named(stage: Stage) -> None:
    run = flow_pb2.NodeSpec(id="a", type="flow", config_json='{"flow_id": "of-bob"}')
    await stage.register("of-ann", finished("of-bob"), user_id="ann")
    spec = flow_pb2.FlowSpec(interval="0", nodes=[run])
    await stage.scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="runs-bob", spec=spec, user_id="ann"))
    run.config_json = '{"flow_id": "runs-bob"}'
    spec = flow_pb2.FlowSpec(nodes=[run], schedule=finished("of-ann"))
    request = pb2.RegisterFlowRequest(flow_id="of-bob", spec=spec, user_id="bob")
    answer = await stage.scheduler.stub.RegisterFlow(request)
    assert [each.message for each in answer.warnings] == [
        'flow "runs-bob" belongs to another user; a node runs only flows of the same user',
        'flow "of-ann" belongs to another user; only ends of the same user\'s flows count',
    ]
    # An operator who gives the flow to the owner of the others closes the loop.
    request.user_id = "ann"
    error = await refused(stage.scheduler.stub.RegisterFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "of-bob -> runs-bob -> of-bob" in str(error.violations)
    assert "of-bob -> of-ann -> of-bob" in str(error.violations)


async def test_calls_that_need_planned_times_are_refused(stage: Stage) -> None:
    stub = stage.scheduler.stub
    await stage.register("f", ON_PRICE)
    start = pb2.StartFlowRequest(flow_id="f")
    start.start_at.FromSeconds(3_000_000_000)
    error = await refused(stub.StartFlow(start), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "set the field start of its schedule instead" in str(error.violations)
    backfill = backfill_pb2.BackfillFlowRequest(flow_id="f")
    backfill.start.FromSeconds(1_000_000_000)
    backfill.end.FromSeconds(1_000_100_000)
    error = await refused(stub.BackfillFlow(backfill), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "so it has no planned times; run it once for each cycle instead" in str(error.violations)


async def test_paused_flow_records_events_and_stopped_flow_receives_none(stage: Stage) -> None:
    scheduler = stage.scheduler
    await stage.register("f", ON_PRICE)
    await stage.start()
    await scheduler.stub.PauseFlow(pb2.PauseFlowRequest(flow_id="f", by="ann", note="lunch"))
    await stage.publish("while paused")
    await stage.wait_for_firings([("while paused", "skipped", None)])
    await scheduler.stub.ResumeFlow(pb2.ResumeFlowRequest(flow_id="f"))
    await stage.publish("resumed")
    await stage.wait_for_firings([("resumed", "fired", 0), ("while paused", "skipped", None)])
    await scheduler.stop()

    async def nobody_listens() -> bool:
        return not await stage.listens()

    await until(nobody_listens, "the trigger service listens for it no more")
    assert (await stage.publish("stopped")).matched == 0
    assert len(await stage.firings()) == 2


async def test_doctor_restores_the_lost_trigger_of_a_flow_on_events(stage: Stage) -> None:
    await stage.register("f", ON_PRICE, overlap=flow_pb2.OVERLAP_POLICY_ALLOW)
    await stage.start()
    # Now the scheduler's stream is open: opening it would restore the trigger before the doctor does.
    await stage.publish("first")
    await stage.wait_for_firings([("first", "fired", 0)])
    named = {"trigger_id": "f", "partition_key": "f"}
    trigger = (await stage.triggers.FindTrigger(trigger_pb2_service.FindTriggerRequest(**named))).trigger
    await stage.triggers.RemoveTrigger(trigger_pb2_service.RemoveTriggerRequest(epoch=trigger.epoch, **named))
    assert (await stage.publish("lost")).matched == 0

    async def mended() -> bool:
        return await run_doctor(stage.scheduler, mend=True) == [("running-without-trigger", "f", True)]

    await until(mended, "the doctor has found and mended it")

    async def is_back() -> bool:
        return (await stage.publish("found")).matched == 1

    await until(is_back, "the trigger is back")
    await stage.wait_for_firings([("found", "fired", 1), ("first", "fired", 0)])


async def test_doctor_lets_a_flow_on_events_listen_again(stage: Stage, embedded: RedisServer) -> None:
    await stage.register("f", ON_PRICE, overlap=flow_pb2.OVERLAP_POLICY_ALLOW)
    await stage.start()
    # As above.
    await stage.publish("first")
    await stage.wait_for_firings([("first", "fired", 0)])
    await embedded.connect().delete(f"trading_flow:{{t{partition_of('f')}}}:events:price")
    assert (await stage.publish("lost")).matched == 0
    assert await run_doctor(stage.scheduler, mend=True) == [("running-without-trigger", "f", True)]
    await until(stage.listens, "the trigger service listens for it again")
    await stage.publish("found")
    await stage.wait_for_firings([("found", "fired", 1), ("first", "fired", 0)])
    assert await run_doctor(stage.scheduler) == []
