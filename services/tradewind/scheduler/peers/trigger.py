"""The trigger service, over gRPC."""

from collections.abc import Mapping, Sequence

import grpc

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1.trigger_pb2 import Schedule, Trigger
from tradewind.api.trigger.v1.trigger_service_pb2_grpc import TriggerServiceStub
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.peers.calls import calling
from tradewind.scheduler.peers.due_stream import DueStreamPeer
from tradewind.scheduler.ports.peers import StaleSchedule
from tradewind.server.statuses import reason_of
from tradewind.server.timestamps import set_timestamp

NAME = "trigger service"
_CALL_S = 5.0


class TriggerPeer:
    """Implements Triggers and Events. A flow has one trigger, with the flow's id.

    Due triggers come up to `lead_ms` before their time.
    """

    def __init__(self, channel: grpc.aio.Channel, receiver: str, lead_ms: int) -> None:
        self._stub = TriggerServiceStub(channel)
        self._receiver = receiver
        self._lead_ms = lead_ms

    def due(self) -> DueStreamPeer:
        return DueStreamPeer(NAME, self._stub.ReceiveDue(), self._receiver, self._lead_ms)

    async def save(
        self, flow_id: str, *, user_id: str, schedule: ScheduleDefinition, first_ms: int, schedule_epoch: int
    ) -> None:
        trigger = Trigger(trigger_id=flow_id, partition_key=flow_id, epoch=schedule_epoch)
        _fill(trigger.schedule, schedule, first_ms, user_id)
        async with calling(NAME):
            try:
                await self._stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger), timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                _raise_stale(error)
                raise

    async def has_listeners(self, name: str) -> bool:
        async with calling(NAME):
            counted = await self._stub.CountListeners(pb2.CountListenersRequest(name=name), timeout=_CALL_S)
        return counted.listeners > 0

    async def publish(self, name: str, event_id: str, payload_json: str) -> None:
        request = pb2.PublishEventRequest(name=name, event_id=event_id, payload_json=payload_json)
        async with calling(NAME):
            await self._stub.PublishEvent(request, timeout=_CALL_S)

    async def epochs_of(self, flow_ids: Sequence[str]) -> Mapping[str, int]:
        request = pb2.FindEpochsRequest(trigger_ids=flow_ids)
        async with calling(NAME):
            return (await self._stub.FindEpochs(request, timeout=_CALL_S)).epochs

    async def remove(self, flow_id: str, schedule_epoch: int) -> None:
        request = pb2.RemoveTriggerRequest(trigger_id=flow_id, partition_key=flow_id, epoch=schedule_epoch)
        async with calling(NAME):
            try:
                await self._stub.RemoveTrigger(request, timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                _raise_stale(error)
                raise


def _fill(message: Schedule, schedule: ScheduleDefinition, first_ms: int, user_id: str) -> None:
    """Write the schedule of a user's flow from its first planned time on.

    The scheduler decides where it ends, except for events.
    """
    if schedule.on:
        message.event.name, message.event.filter_json = schedule.on.event_name, schedule.on.event_filter(user_id)
        for stamp, at_ms in ((message.start, schedule.start_ms), (message.end, schedule.end_ms)):
            if at_ms:
                set_timestamp(stamp, at_ms)
    elif schedule.cron:
        message.cron.expression, message.cron.time_zone = schedule.cron, schedule.zone
        set_timestamp(message.start, first_ms)
    elif schedule.times_ms:
        for time_ms in schedule.times_ms:
            if time_ms >= first_ms:
                set_timestamp(message.times.at.add(), time_ms)
    elif schedule.interval_ms:
        set_timestamp(message.interval.anchor, first_ms)
        message.interval.interval.FromMilliseconds(schedule.interval_ms)
    else:
        set_timestamp(message.once.at, first_ms)
    if schedule.jitter_ms:
        message.jitter.FromMilliseconds(schedule.jitter_ms)


def _raise_stale(error: grpc.aio.AioRpcError) -> None:
    if reason_of(error) == "STALE_EPOCH":
        raise StaleSchedule(error.details()) from error
