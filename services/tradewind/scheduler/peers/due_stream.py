"""The stream on which the trigger service delivers due triggers."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1.trigger_pb2 import DueTrigger
from tradewind.scheduler.domain.due import DueAnswer, DueEvent, DueFlow
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.scheduler.peers.stream import PeerStream
from tradewind.server.timestamps import milliseconds, set_timestamp

_CREDITS = 1000
"""The most triggers that the receiver holds at once."""


class DueStreamPeer(PeerStream[pb2.ReceiveDueRequest, pb2.ReceiveDueResponse]):
    """Implements DueStream. `receiver` names the receiver; triggers come up to `lead_ms` before their time."""

    def __init__(self, peer: str, call: Any, receiver: str, lead_ms: int) -> None:
        super().__init__(peer, call)
        self._first: dict[str, Any] = {"receiver": receiver, "credits": _CREDITS, "listeners_of": [FLOW_FINISHED]}
        if lead_ms:
            self._first["lead"] = timedelta(milliseconds=lead_ms)

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        wanted = [pb2.PartitionSubscription(partition=p, epoch=epoch) for p, epoch in epochs.items()]
        await self.write(pb2.ReceiveDueRequest(subscribe=wanted, **self._first))
        self._first = {}

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        await self.write(pb2.ReceiveDueRequest(unsubscribe=partitions))

    async def receive(self) -> tuple[list[DueFlow], list[int], bool]:
        response = await self.read()
        return [_due(due) for due in response.due], list(response.ended_partitions), bool(response.listened)

    async def answer(self, answers: Sequence[DueAnswer]) -> None:
        request = pb2.ReceiveDueRequest()
        for answer in answers:
            if answer.error:
                nack = request.nacks.add(token=answer.token, error=answer.error)
                if answer.retry_ms >= 0:
                    nack.retry_after.FromMilliseconds(answer.retry_ms)
                    nack.postponed = True
                continue
            ack = request.acks.add(token=answer.token)
            if answer.next_ms > 0:
                set_timestamp(ack.next_fire_time, answer.next_ms)
            else:
                ack.finished = True
        await self.write(request)


def _due(due: DueTrigger) -> DueFlow:
    return DueFlow(
        due.trigger.partition_key,
        milliseconds(due.planned_time),
        milliseconds(due.delivered_at),
        due.trigger.epoch,
        due.token,
        due.traceparent,
        DueEvent(due.event.event_id, due.event.name, due.event.payload_json) if due.HasField("event") else None,
    )
