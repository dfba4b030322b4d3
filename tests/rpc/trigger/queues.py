"""Triggers of a queue over a real channel, and events that fire them."""

from typing import Any

import grpc
import pytest

from tests.rpc.trigger.receiving import Replica
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2

HOUR = 3_600_000
QUEUE = "reports"


def on_event(name: str, filter_json: str = "", **fields: Any) -> trigger_pb2.Schedule:
    event = trigger_pb2.EventSchedule(name=name, filter_json=filter_json)
    return trigger_pb2.Schedule(event=event, **fields)


def on_finished(flow_ids: list[str], statuses: list[str]) -> trigger_pb2.Schedule:
    finished = trigger_pb2.FlowFinishedSchedule(flow_ids=flow_ids, statuses=statuses)
    return trigger_pb2.Schedule(flow_finished=finished)


async def save(
    replica: Replica, id: str, schedule: trigger_pb2.Schedule, queue: str = QUEUE, payload: str = "", epoch: int = 0
) -> trigger_pb2.Trigger:
    trigger = trigger_pb2.Trigger(trigger_id=id, queue=queue, schedule=schedule, payload_json=payload, epoch=epoch)
    return (await replica.stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger))).trigger


async def find(replica: Replica, id: str, queue: str = QUEUE) -> trigger_pb2.Trigger:
    return (await replica.stub.FindTrigger(pb2.FindTriggerRequest(trigger_id=id, queue=queue))).trigger


async def publish(replica: Replica, name: str, payload: str = "", id: str = "") -> pb2.PublishEventResponse:
    request = pb2.PublishEventRequest(name=name, payload_json=payload, event_id=id)
    return await replica.stub.PublishEvent(request)


async def listed(replica: Replica, queue: str = QUEUE, page_size: int = 50) -> list[trigger_pb2.Trigger]:
    found: list[trigger_pb2.Trigger] = []
    token = ""
    while True:
        request = pb2.ListTriggersRequest(queue=queue, page_size=page_size, page_token=token)
        page = await replica.stub.ListTriggers(request)
        found += page.triggers
        token = page.next_page_token
        if not token:
            return found


async def error_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    return refusal.value
