"""One receiver's stream of due triggers."""

import asyncio
from contextlib import closing

import structlog

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.all_faults import every
from tradewind.server.interception import Context
from tradewind.server.partitions import partition_of
from tradewind.server.streams import OpenStreams, run_both
from tradewind.trigger.rpc import mapping, parsing
from tradewind.trigger.rpc.answers import Answers
from tradewind.trigger.use_cases.deliver_due import Delivery
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.parcel import Parcel

_log = structlog.get_logger(__name__)


class DueStream:
    """Serves one ReceiveDue call: reads and writes side by side until either ends or the server shuts down."""

    def __init__(self, deliveries: OpenDeliveries, streams: OpenStreams) -> None:
        self._deliveries = deliveries
        self._streams = streams

    async def serve(self, context: Context) -> None:
        """Serve until the receiver has ended its side, then give back the claims that it holds."""
        with self._streams.opened():
            first = await _message(context)
            if first is not None:
                await self._serve(first, context)

    async def _serve(self, first: pb2.ReceiveDueRequest, context: Context) -> None:
        opening = parsing.opening(first)
        delivery = self._deliveries.open(opening)
        log = _log.bind(receiver=first.receiver[:128], session=delivery.session, queue=opening.queue)
        with closing(_Sender(context, opening.queue)) as sender:
            try:
                if opening.queue:
                    await delivery.share(partition_of(opening.queue))
                await self._take(first, delivery, opening.queue)
                # Not before: while the store is away, receivers try once a second.
                log.info("receiver_connected")
                try:
                    await run_both(context, self._read(delivery, context, opening.queue), _write(delivery, sender))
                finally:
                    log.info("receiver_disconnected")
            finally:
                last = delivery.last()
                delivery.close()
            await sender.end(last)

    async def _read(self, delivery: Delivery, context: Context, queue: str) -> None:
        while True:
            await delivery.wait_for_reader()
            message = await _message(context)
            if message is None:
                return
            await self._take(message, delivery, queue)

    async def _take(self, message: pb2.ReceiveDueRequest, delivery: Delivery, queue: str) -> None:
        wanted, answers = every(
            lambda: parsing.subscriptions(message, queue), lambda: Answers(message, self._deliveries.lease_ms)
        )
        if wanted:
            await delivery.subscribe(wanted)
        delivery.unsubscribe(message.unsubscribe)
        delivery.report_lost(answers.lost)
        await delivery.answer(answers.acks, answers.nacks, answers.extensions)


class _Sender:
    """Sends parcels. gRPC takes one message at a time, and goes on with one whose `write` was cancelled."""

    def __init__(self, context: Context, queue: str) -> None:
        self._context = context
        self._queue = queue
        self._sending: asyncio.Task[None] | None = None

    async def send(self, parcel: Parcel) -> None:
        """Send a parcel, and go on with that if this is cancelled."""
        self._sending = asyncio.create_task(self._send(parcel))
        await asyncio.shield(self._sending)

    async def end(self, last: Parcel) -> None:
        """Tell a receiver that has ended its side which of its last answers came too late."""
        if last.lost:
            if self._sending is not None:
                await self._sending
            await self._send(last)

    def close(self) -> None:
        """Send no more of what is under way."""
        if self._sending is not None and not self._sending.cancel() and not self._sending.cancelled():
            # Whoever ended the stream has said why.
            self._sending.exception()

    async def _send(self, parcel: Parcel) -> None:
        for message in mapping.parcels(parcel, self._queue):
            await self._context.write(message)


async def _write(delivery: Delivery, sender: _Sender) -> None:
    while True:
        await sender.send(await delivery.next())


async def _message(context: Context) -> pb2.ReceiveDueRequest | None:
    """Return the receiver's next message, None when it has ended its side."""
    message = await context.read()
    return message if isinstance(message, pb2.ReceiveDueRequest) else None
