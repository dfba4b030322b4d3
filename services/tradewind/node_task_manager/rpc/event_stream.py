"""One scheduler's stream of events."""

import grpc

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.rpc import mapping
from tradewind.node_task_manager.rpc.checks import STREAM_POSITION
from tradewind.node_task_manager.use_cases.events import EventFeed, Subscriber
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation
from tradewind.server.interception import Context
from tradewind.server.partitions import MAX_EPOCH, PARTITIONS
from tradewind.server.streams import run_both

_MAX_EVENTS = 500
"""The most events in one message: with the longest names and reasons about 1 MiB."""


class EventStream:
    """Serves one ReceiveEvents call."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._subscriber = Subscriber()

    async def serve(self, context: Context) -> None:
        """Read and write until either side ends. Raises InvalidInput for invalid messages."""
        try:
            await run_both(context, self._read(context), self._write(context))
        finally:
            self._feed.leave(self._subscriber)

    async def _write(self, context: Context) -> None:
        while True:
            events, ended = await self._feed.next(self._subscriber)
            for first in range(0, len(events), _MAX_EVENTS):
                message = pb2.ReceiveEventsResponse()
                add = message.events.add
                for shard, event in events[first : first + _MAX_EVENTS]:
                    mapping.fill_event(add(), shard, event)
                await context.write(message)
            if ended:
                await context.write(pb2.ReceiveEventsResponse(ended_partitions=ended))

    async def _read(self, context: Context) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            _check(message)
            for wanted in message.subscribe:
                await self._feed.subscribe(self._subscriber, wanted.partition, wanted.epoch)
            self._feed.unsubscribe(self._subscriber, message.unsubscribe)
            if message.acks:
                acks = [(each.shard, each.partition, each.event_id) for each in message.acks]
                await self._feed.acknowledge(self._subscriber, acks)


def _check(message: pb2.ReceiveEventsRequest) -> None:
    faults = []
    partitions = [(f"subscribe[{at}].partition", each.partition) for at, each in enumerate(message.subscribe)]
    partitions += [(f"unsubscribe[{at}]", each) for at, each in enumerate(message.unsubscribe)]
    partitions += [(f"acks[{at}].partition", each.partition) for at, each in enumerate(message.acks)]
    for path, partition in partitions:
        if not 0 <= partition < PARTITIONS:
            faults.append(Violation(path, f"must be 0 to {PARTITIONS - 1}, is {partition}"))
    for at, each in enumerate(message.subscribe):
        if not 0 <= each.epoch <= MAX_EPOCH:
            faults.append(Violation(f"subscribe[{at}].epoch", f"must be 0 to 2^53 - 1, is {each.epoch}"))
    for at, ack in enumerate(message.acks):
        if not STREAM_POSITION.fullmatch(ack.event_id):
            faults.append(Violation(f"acks[{at}].event_id", "is not the id of an event"))
    require(faults)
