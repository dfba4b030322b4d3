"""A fake of the trigger service that the scheduler calls: a real gRPC servicer that the test controls."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

import grpc

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as trigger_pb2_service
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as trigger_grpc
from tradewind.server.faults import FailedPrecondition, Unavailable
from tradewind.server.interception import Context
from tradewind.server.partitions import partition_of


class FakeTriggerService(trigger_grpc.TriggerServiceServicer):
    """Keeps triggers and fires them when the test says so."""

    def __init__(self) -> None:
        self.triggers: dict[str, trigger_pb2.Trigger] = {}
        self.epochs: dict[str, int] = {}
        self.acks: list[trigger_pb2_service.DueTriggerAck] = []
        self.nacks: list[trigger_pb2_service.DueTriggerNack] = []
        self.saves = 0
        self.down = False
        self.unimplemented: set[str] = set()
        """Names of calls that it does not know, like an earlier release."""
        self.listeners: set[str] = set()
        """Names of events that have listeners."""
        self.events: list[trigger_pb2_service.PublishEventRequest] = []
        self._queues: list[tuple[set[int], asyncio.Queue[trigger_pb2_service.ReceiveDueResponse | None]]] = []
        self._tokens = 0

    async def CountListeners(
        self, request: trigger_pb2_service.CountListenersRequest, context: Context
    ) -> trigger_pb2_service.CountListenersResponse:
        return trigger_pb2_service.CountListenersResponse(listeners=int(request.name in self.listeners))

    async def PublishEvent(
        self, request: trigger_pb2_service.PublishEventRequest, context: Context
    ) -> trigger_pb2_service.PublishEventResponse:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        self.events.append(request)
        return trigger_pb2_service.PublishEventResponse(event_id=request.event_id)

    async def SaveTrigger(
        self, request: trigger_pb2_service.SaveTriggerRequest, context: Context
    ) -> trigger_pb2_service.SaveTriggerResponse:
        await self._check(request.trigger.trigger_id, request.trigger.epoch, context)
        self.saves += 1
        self.triggers[request.trigger.trigger_id] = request.trigger
        return trigger_pb2_service.SaveTriggerResponse(trigger=request.trigger)

    async def FindEpochs(
        self, request: trigger_pb2_service.FindEpochsRequest, context: Context
    ) -> trigger_pb2_service.FindEpochsResponse:
        if "FindEpochs" in self.unimplemented:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        known = {each: self.triggers[each].epoch for each in request.trigger_ids if each in self.triggers}
        return trigger_pb2_service.FindEpochsResponse(epochs=known)

    async def RemoveTrigger(
        self, request: trigger_pb2_service.RemoveTriggerRequest, context: Context
    ) -> trigger_pb2_service.RemoveTriggerResponse:
        await self._check(request.trigger_id, request.epoch, context)
        removed = self.triggers.pop(request.trigger_id, None)
        return trigger_pb2_service.RemoveTriggerResponse(removed=removed is not None)

    async def _check(self, trigger_id: str, epoch: int, context: Context) -> None:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        if epoch < self.epochs.get(trigger_id, 0):
            raise FailedPrecondition("STALE_EPOCH", "a higher epoch is known", f"triggers/{trigger_id}")
        self.epochs[trigger_id] = epoch

    async def ReceiveDue(
        self, request_iterator: AsyncIterator[trigger_pb2_service.ReceiveDueRequest], context: Context
    ) -> AsyncIterator[trigger_pb2_service.ReceiveDueResponse]:
        partitions: set[int] = set()
        queue: asyncio.Queue[trigger_pb2_service.ReceiveDueResponse | None] = asyncio.Queue()
        self._queues.append((partitions, queue))

        async def read() -> None:
            async for request in request_iterator:
                partitions.update(wanted.partition for wanted in request.subscribe)
                partitions.difference_update(request.unsubscribe)
                self.acks += request.acks
                self.nacks += request.nacks

        reading = asyncio.ensure_future(read())
        try:
            while (response := await queue.get()) is not None:
                yield response
            raise Unavailable("STORE_UNAVAILABLE", "the store was away")
        finally:
            reading.cancel()
            self._queues.remove((partitions, queue))

    def end_streams(self) -> None:
        """End the streams of due triggers, as the service does when its store was away."""
        for _, queue in self._queues:
            queue.put_nowait(None)

    def listens(self, flow_id: str) -> bool:
        """Tell whether a scheduler receives the due triggers of a flow."""
        return any(partition_of(flow_id) in partitions for partitions, _ in self._queues)

    def fire(self, flow_ids: Iterable[str], planned_ms: int, epoch: int | None = None) -> list[str]:
        """Deliver triggers of flows as due, together, and return their tokens."""
        batches: dict[int, list[trigger_pb2.DueTrigger]] = {}
        tokens = []
        for flow_id in flow_ids:
            self._tokens += 1
            tokens.append(f"t{self._tokens}")
            trigger = trigger_pb2.Trigger(
                trigger_id=flow_id,
                partition_key=flow_id,
                epoch=self.epochs.get(flow_id, 0) if epoch is None else epoch,
            )
            due = trigger_pb2.DueTrigger(trigger=trigger, token=tokens[-1])
            due.planned_time.FromMilliseconds(planned_ms)
            due.delivered_at.FromMilliseconds(max(planned_ms, time.time_ns() // 1_000_000))
            for at, (partitions, _) in enumerate(self._queues):
                if partition_of(flow_id) in partitions:
                    batches.setdefault(at, []).append(due)
        for at, batch in batches.items():
            self._queues[at][1].put_nowait(trigger_pb2_service.ReceiveDueResponse(due=batch))
        return tokens

    def answer(self, token: str) -> trigger_pb2_service.DueTriggerAck | trigger_pb2_service.DueTriggerNack | None:
        """Return the answer to a due trigger."""
        acks = (ack for ack in self.acks if ack.token == token)
        return next(acks, None) or next((nack for nack in self.nacks if nack.token == token), None)
