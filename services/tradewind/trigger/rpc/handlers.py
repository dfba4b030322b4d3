"""TriggerService: parse, call the use case, answer."""

import asyncio

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as pb2_grpc
from tradewind.server.interception import Context
from tradewind.server.paging import page_size_of
from tradewind.trigger.rpc import mapping, parsing
from tradewind.trigger.rpc.due_stream import DueStream
from tradewind.trigger.use_cases.find_triggers import FindTriggers
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.remove_trigger import RemoveTrigger
from tradewind.trigger.use_cases.save_trigger import SaveTrigger


class TriggerHandlers(pb2_grpc.TriggerServiceServicer):
    """The gRPC face of the trigger service."""

    def __init__(
        self,
        *,
        save: SaveTrigger,
        remove: RemoveTrigger,
        find: FindTriggers,
        deliveries: OpenDeliveries,
        max_payload_bytes: int,
    ) -> None:
        self._save = save
        self._remove = remove
        self._find = find
        self._deliveries = deliveries
        self._max_payload_bytes = max_payload_bytes
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """End every stream, and each new one at once."""
        self._draining.set()

    async def SaveTrigger(self, request: pb2.SaveTriggerRequest, context: Context) -> pb2.SaveTriggerResponse:
        saved = await self._save(parsing.draft(request, self._max_payload_bytes))
        return pb2.SaveTriggerResponse(trigger=mapping.trigger(saved))

    async def RemoveTrigger(self, request: pb2.RemoveTriggerRequest, context: Context) -> pb2.RemoveTriggerResponse:
        parsing.reference(request, request.epoch)
        removed = await self._remove(request.trigger_id, request.partition_key, request.epoch)
        return pb2.RemoveTriggerResponse(removed=removed)

    async def FindTrigger(self, request: pb2.FindTriggerRequest, context: Context) -> pb2.FindTriggerResponse:
        parsing.reference(request)
        found = await self._find.one(request.trigger_id, request.partition_key)
        return pb2.FindTriggerResponse(trigger=mapping.trigger(found))

    async def FindDue(self, request: pb2.FindDueRequest, context: Context) -> pb2.FindDueResponse:
        up_to_ms, cursor = parsing.up_to_ms(request), parsing.cursor(request.page_token)
        found, following = await self._find.due(up_to_ms, cursor, page_size_of(request.page_size))
        return pb2.FindDueResponse(
            triggers=[mapping.trigger(each) for each in found], next_page_token=parsing.token_of(following)
        )

    async def FindAllPending(self, request: pb2.FindAllPendingRequest, context: Context) -> pb2.FindAllPendingResponse:
        cursor = parsing.cursor(request.page_token)
        found, following = await self._find.pending(cursor, page_size_of(request.page_size))
        return pb2.FindAllPendingResponse(
            triggers=[mapping.trigger(each) for each in found], next_page_token=parsing.token_of(following)
        )

    # It writes to the context instead of yielding, so that reading and writing wait for nothing but the stream.
    async def ReceiveDue(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        await DueStream(self._deliveries, self._draining).serve(context)
