"""The outgoing side of a worker's stream, gathered into few messages until the stream can take them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.ports.work import Held, Termination
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.rpc import work_mapping as mapping
from tradewind.server.clock import Clock
from tradewind.server.timestamps import set_timestamp

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
MAX_WAITING_BYTES = 4 * MAX_MESSAGE_BYTES
ACKNOWLEDGE_S = 0.005
"""How long an acknowledgement waits for a message to travel with, unless the worker waits for it."""


@dataclass(slots=True)
class _Unacknowledged:
    """A message of the worker of which `parts` have yet to take effect; `losses` are its refused outcomes.

    The worker may wait for the acknowledgement (`awaited`).
    """

    sequence: int
    parts: int
    awaited: bool
    losses: list[work_pb2.LeaseLoss] = field(default_factory=list)


class OutgoingLine:
    """A WorkerLine; `on_writable` is called when it is no longer full."""

    def __init__(self, stop_grace_ms: int, clock: Clock, on_writable: Callable[[], None]) -> None:
        self._stop_grace_ms = stop_grace_ms
        self._clock = clock
        self._on_writable = on_writable
        self._messages: deque[work_pb2.WorkResponse] = deque()
        self._sizes: deque[int] = deque()
        self._waiting = 0
        self._reader: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._unacknowledged: deque[_Unacknowledged] = deque()
        self._acknowledged = 0
        self._acknowledge_timer: asyncio.TimerHandle | None = None
        self.closed_for = ""

    @property
    def full(self) -> bool:
        return self._waiting > MAX_WAITING_BYTES

    @property
    def overfull(self) -> bool:
        """Whether far more waits than makes the line full: answers to the worker's messages, which come even then."""
        return self._waiting > 2 * MAX_WAITING_BYTES

    async def writable(self) -> None:
        await self._writable.wait()

    def assign(self, ready: Sequence[Ready]) -> None:
        now_ms = self._clock.now_ms()
        assignments = self._room_for(0).assignments
        for each in ready:
            size = each.size
            if self._fits(size):
                self._count(size)
            else:
                assignments = self._room_for(size).assignments
            mapping.fill_assignment(assignments.add(), each, now_ms)

    def terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        for each in terminations:
            message = mapping.termination(shard, each, self._stop_grace_ms)
            self._room_for(message.ByteSize()).terminations.append(message)

    def report_losses(self, shard: int, losses: Sequence[tuple[Held, str]], sequence: int | None = None) -> None:
        messages = [work_pb2.LeaseLoss(token=mapping.token_text(shard, held), reason=reason) for held, reason in losses]
        for message in self._unacknowledged:
            if message.sequence == sequence:
                message.losses += messages
                return
        for each in messages:
            self._room_for(each.ByteSize()).losses.append(each)

    def expect(self, sequence: int, parts: int, *, awaited: bool = False) -> None:
        self._unacknowledged.append(_Unacknowledged(sequence, parts, awaited))
        if not parts:
            self._acknowledge_heads()

    def acknowledge(self, sequence: int) -> None:
        for message in self._unacknowledged:
            if message.sequence == sequence and message.parts:
                message.parts -= 1
                break
        self._acknowledge_heads()

    def _acknowledge_heads(self) -> None:
        through, awaited = 0, False
        while self._unacknowledged and not self._unacknowledged[0].parts:
            head = self._unacknowledged.popleft()
            through, awaited = head.sequence, awaited or head.awaited
            if head.losses:
                # All in the message that acknowledges it: the worker then goes on with whatever was not refused.
                message = self._room_for(sum(each.ByteSize() for each in head.losses))
                message.losses.extend(head.losses)
                message.acknowledged_sequence = through
        if not through:
            return
        if self._messages:
            self._messages[-1].acknowledged_sequence = through
            return
        self._acknowledged = through
        if awaited:
            self._send_acknowledgement()
        elif self._acknowledge_timer is None:
            self._acknowledge_timer = asyncio.get_running_loop().call_later(ACKNOWLEDGE_S, self._send_acknowledgement)

    def _send_acknowledgement(self) -> None:
        """Send an acknowledgement that no message has taken along meanwhile."""
        if self._acknowledge_timer is not None:
            self._acknowledge_timer.cancel()
            self._acknowledge_timer = None
        if self._acknowledged and not self.closed_for:
            self._room_for(0)

    def resync(self) -> None:
        self._room_for(0).resync = True

    def ping(self, number: int) -> None:
        self._room_for(0).ping = number

    def close(self, reason: str) -> None:
        self.closed_for = reason
        self._wake()
        self._writable.set()

    def send(self, **fields: Any) -> None:
        """Send fields of a response."""
        self._room_for(0).MergeFrom(work_pb2.WorkResponse(**fields))

    async def next(self) -> work_pb2.WorkResponse | None:
        """Return the next message as soon as there is one; None once the line is closed and empty."""
        while not self._messages:
            if self.closed_for:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        was_full = self.full
        message = self._messages.popleft()
        self._waiting -= self._sizes.popleft()
        if message.assignments:
            set_timestamp(message.sent_at, self._clock.now_ms())
        if was_full and not self.full:
            self._writable.set()
            self._on_writable()
        return message

    def _room_for(self, size: int) -> work_pb2.WorkResponse:
        """Return the message to put `size` more bytes into, so that none grows beyond 2 MiB."""
        if not self._messages or not self._fits(size):
            self._messages.append(work_pb2.WorkResponse(acknowledged_sequence=self._acknowledged))
            self._acknowledged = 0
            self._sizes.append(0)
        self._count(size)
        self._wake()
        return self._messages[-1]

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _fits(self, size: int) -> bool:
        """Say whether `size` more bytes fit into the last message; anything larger has a message to itself."""
        before = self._sizes[-1]
        return not before or before + size <= MAX_MESSAGE_BYTES

    def _count(self, size: int) -> None:
        self._sizes[-1] += size
        self._waiting += size
        if self._waiting > MAX_WAITING_BYTES and not self.closed_for:
            self._writable.clear()
