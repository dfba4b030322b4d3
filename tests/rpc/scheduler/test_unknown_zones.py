"""A flow whose time zone a scheduler with older tzdata does not know keeps no other from running."""

import time

import grpc
import pytest
from structlog.testing import capture_logs

from tests.older_tzdata import forget_zone
from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.rpc.scheduler.explanations import explain_flow
from tests.waiting import until
from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2

BERLIN = flow_pb2.ScheduleSpec(cron="* * * * *", zone="Europe/Berlin", end="2999-01-01T00:00:00Z")


async def register_in_berlin(scheduler: Client) -> None:
    spec = flow_pb2.FlowSpec(nodes=[flow_pb2.NodeSpec(id="a", type="t")], schedule=BERLIN)
    await scheduler.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id="f", spec=spec))


async def test_flow_in_unknown_zone_is_postponed_and_others_begin(
    scheduler: Client, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_in_berlin(scheduler)
    await scheduler.register("fine")
    for flow_id in ("f", "fine"):
        await scheduler.start(flow_id)
    forget_zone(monkeypatch, "Europe/Berlin")

    with capture_logs() as logs:
        berlin, fine = peers.triggers.fire(["f", "fine"], time.time_ns() // 1_000_000)
        await until(lambda: peers.triggers.answer(berlin) and peers.triggers.answer(fine), "both are answered")

    postponed = peers.triggers.answer(berlin)
    assert isinstance(postponed, trigger_service_pb2.DueTriggerNack)
    assert (postponed.postponed, postponed.retry_after.seconds) == (True, 30)
    assert isinstance(peers.triggers.answer(fine), trigger_service_pb2.DueTriggerAck)
    assert [line["time_zone"] for line in logs if line["event"] == "time_zone_unknown"] == ["Europe/Berlin"]


async def test_flow_in_unknown_zone_can_be_read_run_and_explained(
    scheduler: Client, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_in_berlin(scheduler)
    await scheduler.start()
    forget_zone(monkeypatch, "Europe/Berlin")

    assert (await scheduler.flow()).flow_id == "f"
    await scheduler.run(wait=0)
    sentence, facts = (await explain_flow(scheduler))["time_zone_unknown"]
    assert '"Europe/Berlin", which this server does not know' in sentence
    assert facts == {"zone": "Europe/Berlin"}
    call = scheduler.stub.ListNextExecutions(pb2.ListNextExecutionsRequest(flow_id="f", count=1))
    refusal = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert "does not know" in refusal.message
