"""Acknowledging events, which says that these and all before them are on record."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress

from tradewind.scheduler.domain.sub_flow import Event
from tradewind.scheduler.ports.peers import EventStream, PeerUnavailable
from tradewind.scheduler.use_cases.background import Background

_ACK_S = 0.05


class Batch:
    """Events that came together; `seen_to` is said of all parts of it in turn, of `parts` in all."""

    def __init__(self, acks: "Acks", stream: EventStream, parts: int) -> None:
        self._acks = acks
        self.stream = stream
        self.events: list[Event] = []
        self.open = parts
        self._lost: set[int] = set()

    def seen_to(self, events: Sequence[Event], lost: Collection[int] = ()) -> None:
        """A part is seen to: these events are on record, unless their partitions turn out to be lost."""
        self.events += events
        self._lost.update(lost)
        self.open -= 1
        if not self.open:
            self.events = [event for event in self.events if event.partition not in self._lost]
            self._acks.closed()


class Acks:
    """Acknowledges batches in the order in which they came, all of 50 ms in one message: nobody waits for it, and it
    costs a script there."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._batches: deque[Batch] = deque()
        self._stream: EventStream | None = None
        self._last: dict[tuple[int, int], Event] = {}

    def batch(self, stream: EventStream, parts: int) -> Batch:
        """Open a batch; it is acknowledged once all its parts are seen to, if its stream lasts until then."""
        if self._batches and self._batches[0].stream is not stream:
            # What was not seen to on a stream that broke comes again.
            self._batches.clear()
        batch = Batch(self, stream, parts)
        self._batches.append(batch)
        return batch

    def closed(self) -> None:
        """Some batch is seen to."""
        while self._batches and not self._batches[0].open:
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
            # Whoever reads hears that it was lost; what was not acknowledged comes again.
            with suppress(PeerUnavailable):
                await stream.acknowledge(last.values())
