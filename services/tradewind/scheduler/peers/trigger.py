"""The trigger service, over gRPC."""

import grpc

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1.trigger_pb2 import Trigger
from tradewind.api.trigger.v1.trigger_service_pb2_grpc import TriggerServiceStub
from tradewind.scheduler.peers.calls import calling, reason_of, set_milliseconds
from tradewind.scheduler.peers.streams import DueStreamPeer
from tradewind.scheduler.ports import StaleSchedule

NAME = "trigger service"
_CALL_S = 5.0


class TriggerPeer:
    """Implements Triggers. A flow has one trigger, which bears its id."""

    def __init__(self, channel: grpc.aio.Channel, receiver: str, credits: int = 1000) -> None:
        self._stub = TriggerServiceStub(channel)
        self._receiver = receiver
        self._credits = credits

    def due(self) -> DueStreamPeer:
        return DueStreamPeer(NAME, self._stub.ReceiveDue(), self._receiver, self._credits)

    async def save(self, flow_id: str, *, interval_ms: int, anchor_ms: int, schedule_epoch: int) -> None:
        trigger = Trigger(trigger_id=flow_id, partition_key=flow_id, epoch=schedule_epoch)
        if interval_ms:
            set_milliseconds(trigger.schedule.interval.anchor, anchor_ms)
            trigger.schedule.interval.interval.FromMilliseconds(interval_ms)
        else:
            set_milliseconds(trigger.schedule.once.at, anchor_ms)
        async with calling(NAME):
            try:
                await self._stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger), timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                _raise_stale(error)
                raise

    async def remove(self, flow_id: str, schedule_epoch: int) -> None:
        request = pb2.RemoveTriggerRequest(trigger_id=flow_id, partition_key=flow_id, epoch=schedule_epoch)
        async with calling(NAME):
            try:
                await self._stub.RemoveTrigger(request, timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                _raise_stale(error)
                raise


def _raise_stale(error: grpc.aio.AioRpcError) -> None:
    if reason_of(error) == "STALE_EPOCH":
        raise StaleSchedule(error.details()) from error
