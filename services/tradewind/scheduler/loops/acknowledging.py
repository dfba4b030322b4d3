"""Acknowledges events: an acknowledgement says that an event and all before it are on record."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress

from tradewind.scheduler.domain.sub_flow import Event
from tradewind.scheduler.ports.peers import EventStream, PeerUnavailable
from tradewind.scheduler.use_cases.background import Background

_ACK_S = 0.2


class Batch:
    """Events that came together, in order, to be handled in `parts` parts; `part_done` is called for each part."""

    def __init__(self, acks: "Acks", stream: EventStream, events: Sequence[Event], parts: int) -> None:
        self._acks = acks
        self.stream = stream
        self.events = events
        self.open_parts = parts

    def part_done(self, lost: Collection[int] = ()) -> None:
        """Note that a part is done: its events are on record, unless their partitions turn out to be lost."""
        self.events = [event for event in self.events if event.partition not in lost]
        self.open_parts -= 1
        if not self.open_parts:
            self._acks.acknowledge_done()


class Acks:
    """Acknowledges batches in the order in which they came, all those of 0.2 s in one message.

    Nobody waits for an acknowledgement, and each costs the node task manager a script.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._batches: deque[Batch] = deque()
        self._stream: EventStream | None = None
        self._last: dict[tuple[int, int], Event] = {}

    def batch(self, stream: EventStream, events: Sequence[Event], parts: int) -> Batch:
        """Open a batch; it is acknowledged once all its parts are done, if its stream lasts until then."""
        if self._batches and self._batches[0].stream is not stream:
            # The stream has broken: events that were not acknowledged on it come again.
            self._batches.clear()
        batch = Batch(self, stream, events, parts)
        self._batches.append(batch)
        return batch

    def acknowledge_done(self) -> None:
        """Take out and acknowledge the first batches, as far as they are done."""
        while self._batches and not self._batches[0].open_parts:
            self._add(self._batches.popleft())

    def _add(self, batch: Batch) -> None:
        if batch.stream is not self._stream:
            self._stream, self._last = batch.stream, {}
        if batch.events and not self._last:
            self._background.begin(self._send(batch.stream), "acknowledgement of events")
        self._last.update(((event.partition, event.shard), event) for event in batch.events)

    async def _send(self, stream: EventStream) -> None:
        await asyncio.sleep(_ACK_S)
        if stream is self._stream:
            last, self._last = self._last, {}
            # The reader notices that the stream is lost; events that were not acknowledged come again.
            with suppress(PeerUnavailable):
                await stream.acknowledge(last.values())
