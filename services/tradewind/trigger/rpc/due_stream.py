"""One receiver's stream of due triggers."""

import asyncio

import structlog

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.ending import end_tasks
from tradewind.server.faults import Unavailable
from tradewind.server.interception import Context
from tradewind.server.partitions import partition_of
from tradewind.trigger.rpc import mapping, parsing
from tradewind.trigger.rpc.answers import Answers
from tradewind.trigger.use_cases.deliver_due import Delivery
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries

_log = structlog.get_logger(__name__)


class DueStream:
    """Serves one ReceiveDue call: reads and writes side by side until either ends or the server shuts down."""

    def __init__(self, deliveries: OpenDeliveries, draining: asyncio.Event) -> None:
        self._deliveries = deliveries
        self._draining = draining

    async def serve(self, context: Context) -> None:
        """Serve until the receiver has ended its side, then give back the claims that it holds."""
        leaving = asyncio.create_task(self._draining.wait())
        serving = asyncio.create_task(self._serve(context))
        try:
            await asyncio.wait({leaving, serving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and not serving.done():
                raise Unavailable("DRAINING", "this server is shutting down; connect again", retry_after_s=0.1)
            await serving
        finally:
            await end_tasks([leaving, serving])

    async def _serve(self, context: Context) -> None:
        first = await _message(context)
        if first is None:
            return
        queue = parsing.stream_queue(first)
        listeners_of = parsing.listeners_of(first)
        delivery = self._deliveries.open(parsing.credits(first), queue, parsing.lead_ms(first), listeners_of)
        log = _log.bind(receiver=first.receiver[:128], session=delivery.session, queue=queue)
        log.info("receiver_came")
        reading = asyncio.create_task(self._read(first, delivery, context, queue))
        writing = asyncio.create_task(self._write(delivery, context, queue))
        try:
            done, _ = await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # Close first: a call that is cut off may be cut off again while it waits for its tasks.
            delivery.close()
            log.info("receiver_left")
            await end_tasks([reading, writing])

    async def _read(self, first: pb2.ReceiveDueRequest, delivery: Delivery, context: Context, queue: str) -> None:
        message: pb2.ReceiveDueRequest | None = first
        if queue:
            await delivery.share(partition_of(queue))
        while message is not None:
            wanted = parsing.subscriptions(message, queue)
            answers = Answers(message, self._deliveries.lease_ms)
            if wanted:
                await delivery.subscribe(wanted)
            delivery.unsubscribe(message.unsubscribe)
            delivery.report_lost(answers.lost)
            await delivery.answer(answers.acks, answers.nacks, answers.extensions)
            await delivery.wait_for_reader()
            message = await _message(context)

    async def _write(self, delivery: Delivery, context: Context, queue: str) -> None:
        while True:
            for message in mapping.parcels(await delivery.next(), queue):
                await context.write(message)


async def _message(context: Context) -> pb2.ReceiveDueRequest | None:
    """Return the receiver's next message, None when it has ended its side."""
    message = await context.read()
    return message if isinstance(message, pb2.ReceiveDueRequest) else None
