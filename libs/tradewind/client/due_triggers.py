"""Receiving the due triggers of a queue."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeAlias
from weakref import WeakSet, WeakValueDictionary

import grpc

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb
from tradewind.client.absence import Absence
from tradewind.client.calls import Calls
from tradewind.client.errors import Unavailable
from tradewind.client.json_text import decode
from tradewind.client.refusals import error_from
from tradewind.client.triggers import TriggerRecord, trigger_from
from tradewind.client.wire import Seconds, duration, moment, seconds_of, span, timestamp

_Method: TypeAlias = grpc.aio.StreamStreamMultiCallable[pb.ReceiveDueRequest, pb.ReceiveDueResponse]
_Call: TypeAlias = grpc.aio.StreamStreamCall[pb.ReceiveDueRequest, pb.ReceiveDueResponse]
_PAUSE_S = 0.1
_END_S = 5.0
_LONGEST_LEASE_S = 3600.0


class DueTrigger:
    """A trigger that is due, leased to this receiver until `lease_deadline`; answer it with `ack` or `nack`.

    The lease is renewed automatically until the trigger is taken from the iterator; from then on, only by `extend`.

    When it fires for an event, `event_id`, `event_name` and `event` (its payload) say which; else they are empty.
    `planned_time` is when it was due, `delivered_at` when it was leased, by the store's clock. An answer has no effect
    when the lease has lapsed or the connection that delivered the trigger has broken: it is delivered again.
    """

    def __init__(self, message: trigger_pb2.DueTrigger, stream: "_Stream") -> None:
        self.trigger: TriggerRecord = trigger_from(message.trigger)
        self.token: str = message.token
        self.planned_time: datetime | None = moment(message, "planned_time")
        self.delivered_at: datetime | None = moment(message, "delivered_at")
        self.lease_deadline: datetime | None = moment(message, "lease_deadline")
        self.event_id: str = message.event.event_id
        self.event_name: str = message.event.name
        self.event: Any = decode(message.event.payload_json)
        self._stream = stream

    def __repr__(self) -> str:
        return f"DueTrigger({self.trigger_id!r}, planned_time={self.planned_time})"

    @property
    def trigger_id(self) -> str:
        """The id of the trigger."""
        return self.trigger.trigger_id

    @property
    def payload(self) -> Any:
        """The payload that was saved with the trigger."""
        return self.trigger.payload

    async def ack(self, *, next_fire_time: datetime | None = None, finished: bool = False) -> None:
        """Report that it was handled.

        `next_fire_time`, which may have passed, replaces the first planned time after now as its next one; with
        `finished`, it fires at no more planned times.
        """
        ack = pb.DueTriggerAck(token=self.token, next_fire_time=timestamp(next_fire_time), finished=finished)
        await self._stream.answer(self, pb.ReceiveDueRequest(acks=[ack]))

    async def nack(self, error: str = "", *, retry_after: Seconds | None = None) -> None:
        """Report that it could not be handled: it comes again after `retry_after` seconds, or by backoff if None."""
        nack = pb.DueTriggerNack(token=self.token, error=error)
        if retry_after is not None:
            nack.retry_after.CopyFrom(span(seconds_of(retry_after)))
        await self._stream.answer(self, pb.ReceiveDueRequest(nacks=[nack]))

    async def extend(self, lease: Seconds) -> None:
        """Ask for more time: the lease then ends `lease` seconds from now, at most 3600. Raises ValueError."""
        seconds = seconds_of(lease)
        # The server would end the connection, and with it all leases.
        if not 0 < seconds <= _LONGEST_LEASE_S:
            raise ValueError(f"a lease must be above 0 s and at most {_LONGEST_LEASE_S:g} s, is {seconds:g} s")
        extension = pb.DueTriggerExtension(token=self.token, lease=duration(seconds))
        await self._stream.answer(self, pb.ReceiveDueRequest(extensions=[extension]))


class _Stream:
    """One connection, and the triggers that came over it and are not taken yet, whose leases it renews.

    Answers after it has broken are dropped, and their triggers added to `lost`: the server has already given back what
    the connection held.
    """

    def __init__(self, call: _Call, lost: WeakSet[DueTrigger]) -> None:
        self.call = call
        self._lost = lost
        self._prefetched: deque[DueTrigger] = deque()
        self._write_lock = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    def add(self, due: Sequence[DueTrigger]) -> None:
        """Hold these triggers until they are taken."""
        self._prefetched.extend(due)
        if self._renewing is None and due and due[0].lease_deadline and due[0].delivered_at:
            self._renewing = asyncio.create_task(self._renew((due[0].lease_deadline - due[0].delivered_at) / 3))

    def pop(self) -> DueTrigger | None:
        """Return the trigger that came first; None if none is left or the connection has broken."""
        if self.call.done():
            self._prefetched.clear()
        return self._prefetched.popleft() if self._prefetched else None

    async def answer(self, due: DueTrigger, message: pb.ReceiveDueRequest) -> None:
        """Send the answer to a trigger."""
        if not await self.send(message):
            self._lost.add(due)

    async def send(self, message: pb.ReceiveDueRequest) -> bool:
        """Send a message; return whether the connection has taken it."""
        async with self._write_lock:
            # The reader learns that the connection broke, and connects again.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self.call.write(message)
                return True
        return False

    async def stop_renewing(self) -> None:
        """Stop renewing leases."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self, interval: timedelta) -> None:
        while True:
            await asyncio.sleep(interval.total_seconds())
            if held := tuple(self._prefetched):
                extensions = [pb.DueTriggerExtension(token=due.token) for due in held]
                if await self.send(pb.ReceiveDueRequest(extensions=extensions)):
                    for due in held:
                        due.lease_deadline = due.lease_deadline and due.lease_deadline + interval


class DueTriggers:
    """An endless iterator of due triggers; it connects on first use, and again whenever the server goes away.

    Raises Unavailable when the server has been away for as long as the client has patience.
    """

    def __init__(self, method: Callable[[], _Method], calls: Calls, queue: str, credits: int, receiver: str) -> None:
        self._method = method
        self._calls = calls
        self._hello = pb.ReceiveDueRequest(queue=queue, credits=credits, receiver=receiver)
        self._stream: _Stream | None = None
        self._reading: asyncio.Task[object] | None = None
        self._delivered: WeakValueDictionary[str, DueTrigger] = WeakValueDictionary()
        self._lost: WeakSet[DueTrigger] = WeakSet()
        self._absence = Absence()

    async def __aenter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the connection, as `close` does."""
        await self.close()

    def __aiter__(self) -> AsyncIterator[DueTrigger]:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> DueTrigger:
        """Return the next due trigger, as soon as there is one."""
        while self._stream is None or (due := self._stream.pop()) is None:
            if self._reading is None:
                # A task of its own: cancelling a caller while it waits must not break the connection.
                self._reading = asyncio.create_task(self._read())
                # After that, perhaps nobody asks how it ended.
                self._reading.add_done_callback(lambda read: read.cancelled() or read.exception())
            reading = self._reading
            await asyncio.wait({reading})
            self._reading = None
            try:
                reading.result()
            except grpc.aio.AioRpcError as refusal:
                await self._disconnect()
                error = error_from(refusal, self._calls.addresses.trigger, "ReceiveDue")
                if not isinstance(error, Unavailable) or self._absence.stream_broken(error) >= self._calls.patience:
                    self._absence = Absence()
                    raise error from None
                await asyncio.sleep(max(error.retry_after, _PAUSE_S))
        return due

    def lost(self, due: DueTrigger) -> bool:
        """Return whether an answer to this trigger is known to have had no effect.

        The server has reported it, or the connection had broken before.
        """
        return due in self._lost

    async def close(self) -> None:
        """End the connection: answers given have arrived then, and triggers without an answer are given back.

        `lost` then knows which answers had no effect.
        """
        stream, self._stream = self._stream, None
        reading, self._reading = self._reading, None
        if stream is not None:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                async with asyncio.timeout(_END_S):
                    await stream.call.done_writing()
                    message = await (reading or stream.call.read())
                    while isinstance(message, pb.ReceiveDueResponse):
                        self._note_lost(message)
                        reading = None
                        message = await stream.call.read()
            stream.call.cancel()
            await stream.stop_renewing()
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> object:
        """Read a message, after connecting if there is no connection."""
        if self._stream is None:
            self._calls.own_loop()
            self._absence.stream_opening()
            self._stream = _Stream(self._method()(), self._lost)
            await self._stream.call.write(self._hello)
        stream = self._stream
        with self._calls.until_closed():
            message = await stream.call.read()
        if isinstance(message, pb.ReceiveDueResponse):
            self._absence.received()
            self._note_lost(message)
            triggers = [DueTrigger(each, stream) for each in message.due]
            self._delivered.update((each.token, each) for each in triggers)
            stream.add(triggers)
        else:
            await self._disconnect()
        return message

    def _note_lost(self, message: pb.ReceiveDueResponse) -> None:
        self._lost.update(filter(None, map(self._delivered.get, message.lost_tokens)))

    async def _disconnect(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.stop_renewing()
