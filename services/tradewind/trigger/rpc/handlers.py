"""TriggerService: parses the request, calls the use case, builds the response."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from tradewind.api.trigger.v1 import doctor_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as pb2_grpc
from tradewind.server.all_faults import every
from tradewind.server.clock import Clock
from tradewind.server.doctor import Doctor
from tradewind.server.doctor_answers import doctor_answers
from tradewind.server.interception import Context
from tradewind.server.streams import OpenStreams
from tradewind.server.timestamps import timestamp
from tradewind.trigger.rpc import mapping, parsing, queue_parsing
from tradewind.trigger.rpc.due_stream import DueStream
from tradewind.trigger.use_cases.change_triggers import ChangeTriggers
from tradewind.trigger.use_cases.find_triggers import FindTriggers, Listing
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.publish_event import PublishEvent
from tradewind.trigger.use_cases.save_trigger import SaveTrigger

Response = TypeVar("Response")


class TriggerHandlers(pb2_grpc.TriggerServiceServicer):
    """The gRPC side of the trigger service."""

    def __init__(
        self,
        *,
        save: SaveTrigger,
        find: FindTriggers,
        change: ChangeTriggers,
        publish: PublishEvent,
        deliveries: OpenDeliveries,
        doctor: Doctor,
        max_payload_bytes: int,
        clock: Clock,
    ) -> None:
        self._change = change
        self._publish = publish
        self._save = save
        self._find = find
        self._deliveries = deliveries
        self._doctor = doctor
        self._max_payload_bytes = max_payload_bytes
        self._clock = clock
        self._streams = OpenStreams()

    def drain(self) -> None:
        """End every stream, and refuse new ones."""
        self._streams.drain()

    async def SaveTrigger(self, request: pb2.SaveTriggerRequest, context: Context) -> pb2.SaveTriggerResponse:
        draft = parsing.draft(request, self._max_payload_bytes, self._clock.now_ms())
        queue = request.trigger.queue
        return pb2.SaveTriggerResponse(trigger=mapping.trigger(await self._save(draft, queue), queue))

    async def RemoveTrigger(self, request: pb2.RemoveTriggerRequest, context: Context) -> pb2.RemoveTriggerResponse:
        parsing.reference(request, request.epoch)
        removed = await self._change.remove(request.trigger_id, request.partition_key, request.epoch, request.queue)
        return pb2.RemoveTriggerResponse(removed=removed)

    async def FindTrigger(self, request: pb2.FindTriggerRequest, context: Context) -> pb2.FindTriggerResponse:
        parsing.reference(request)
        found = await self._find.one(request.trigger_id, request.partition_key, request.queue)
        return pb2.FindTriggerResponse(trigger=mapping.trigger(found, request.queue))

    async def FindEpochs(self, request: pb2.FindEpochsRequest, context: Context) -> pb2.FindEpochsResponse:
        return pb2.FindEpochsResponse(epochs=await self._find.epochs(parsing.trigger_ids(request)))

    async def FindDue(self, request: pb2.FindDueRequest, context: Context) -> pb2.FindDueResponse:
        up_to_ms, page = every(lambda: parsing.up_to_ms(request), lambda: parsing.page(request))
        found = await self._find.due(up_to_ms, *page, request.queue)
        return _listed(pb2.FindDueResponse, found, request.queue)

    async def FindAllPending(self, request: pb2.FindAllPendingRequest, context: Context) -> pb2.FindAllPendingResponse:
        found = await self._find.pending(*parsing.page(request), request.queue)
        return _listed(pb2.FindAllPendingResponse, found, request.queue)

    async def PublishEvent(self, request: pb2.PublishEventRequest, context: Context) -> pb2.PublishEventResponse:
        payload = queue_parsing.event(request, self._max_payload_bytes)
        published = await self._publish(request.name, request.payload_json, payload, request.event_id)
        return pb2.PublishEventResponse(
            event_id=published.event_id,
            matched=published.matched,
            fired=published.fired,
            duplicates=published.duplicates,
            dropped=published.dropped,
            listeners=published.listeners,
        )

    async def CountListeners(self, request: pb2.CountListenersRequest, context: Context) -> pb2.CountListenersResponse:
        queue_parsing.event_name(request)
        return pb2.CountListenersResponse(listeners=await self._find.count_listeners(request.name))

    async def ListTriggers(self, request: pb2.ListTriggersRequest, context: Context) -> pb2.ListTriggersResponse:
        _, page = every(lambda: parsing.require_queue(request.queue), lambda: parsing.page(request))
        found = await self._find.all(*page, request.queue)
        return _listed(pb2.ListTriggersResponse, found, request.queue)

    async def ListDeadTriggers(
        self, request: pb2.ListDeadTriggersRequest, context: Context
    ) -> pb2.ListDeadTriggersResponse:
        found = await self._find.dead(*parsing.page(request), request.queue)
        return _listed(pb2.ListDeadTriggersResponse, found, request.queue)

    async def FireTrigger(self, request: pb2.FireTriggerRequest, context: Context) -> pb2.FireTriggerResponse:
        queue_parsing.firing(request, self._max_payload_bytes)
        event_id, fired = await self._change.fire(
            request.queue, request.trigger_id, request.payload_json, request.request_id
        )
        return pb2.FireTriggerResponse(event_id=event_id, fired=fired)

    async def PauseTrigger(self, request: pb2.PauseTriggerRequest, context: Context) -> pb2.PauseTriggerResponse:
        paused = await self._change.pause(request.queue, request.trigger_id, queue_parsing.note(request))
        return pb2.PauseTriggerResponse(trigger=mapping.trigger(paused, request.queue))

    async def ResumeTrigger(self, request: pb2.ResumeTriggerRequest, context: Context) -> pb2.ResumeTriggerResponse:
        queue_parsing.reference(request)
        resumed = await self._change.resume(request.queue, request.trigger_id)
        return pb2.ResumeTriggerResponse(trigger=mapping.trigger(resumed, request.queue))

    async def RedriveTrigger(self, request: pb2.RedriveTriggerRequest, context: Context) -> pb2.RedriveTriggerResponse:
        queue_parsing.dead_reference(request)
        await self._change.redrive(request.queue, request.partition_key, request.trigger_id, request.firing_id)
        return pb2.RedriveTriggerResponse()

    async def ListFirings(self, request: pb2.ListFiringsRequest, context: Context) -> pb2.ListFiringsResponse:
        after, size = queue_parsing.history(request)
        found, next_position = await self._find.firings(
            request.queue, request.partition_key, after, size, request.trigger_id
        )
        return pb2.ListFiringsResponse(
            firings=map(mapping.firing, found), next_page_token=queue_parsing.history_token(next_position)
        )

    async def CountTriggers(self, request: pb2.CountTriggersRequest, context: Context) -> pb2.CountTriggersResponse:
        counts = await self._find.counts(parsing.queue(request.queue))
        first_ms = min((each.first_ms for each in counts if each.first_ms is not None), default=None)
        return pb2.CountTriggersResponse(
            triggers=sum(each.triggers for each in counts),
            scheduled=sum(each.scheduled for each in counts),
            claimed=sum(each.claimed for each in counts),
            dead=sum(each.dead for each in counts),
            orphans=sum(each.orphans for each in counts),
            first_due=None if first_ms is None else timestamp(first_ms),
        )

    async def RunDoctor(
        self, request: doctor_pb2.RunDoctorRequest, context: Context
    ) -> AsyncIterator[doctor_pb2.RunDoctorResponse]:
        async for answer in doctor_answers(self._doctor, request.mend, doctor_pb2.RunDoctorResponse):
            yield answer

    # It writes to the context instead of yielding, so that reading and writing wait only for the stream.
    async def ReceiveDue(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        await DueStream(self._deliveries, self._streams).serve(context)


def _listed(response: Callable[..., Response], found: Listing, queue: str) -> Response:
    triggers, next_cursor = found
    return response(
        triggers=[mapping.trigger(each, queue) for each in triggers], next_page_token=parsing.cursor_token(next_cursor)
    )
