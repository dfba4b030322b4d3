"""Handles events that take calls to other services, beside the ends of components."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from tradewind.scheduler.domain.sub_flow import Event
from tradewind.scheduler.loops.acknowledging import Batch
from tradewind.scheduler.use_cases.background import Background
from tradewind.server.backoff import Backoff

_BACKOFF_S = (0.05, 2.0)
_TRIES = 8
_MAX_WAITING = 100
"""The most batches that may wait to be handled before `put` waits."""

_log = structlog.get_logger(__name__)

EventT = TypeVar("EventT", bound=Event)
Handle = Callable[[Sequence[EventT]], Awaitable[None]]


class EventQueue(Generic[EventT]):
    """Handles events of one kind, in order, while ends of components are folded.

    Calls to other services take their time, and ends must not wait for them: ends wait only while too many batches wait
    here.
    """

    def __init__(self, handle: Handle[EventT], background: Background, kind: str) -> None:
        self._handle = handle
        self._background = background
        self._kind = kind
        self._waiting: list[tuple[list[EventT], Batch]] = []
        self._room = asyncio.Event()
        self._busy = False

    async def put(self, events: list[EventT], batch: Batch) -> None:
        """Handle these events soon, as a part of their batch; wait while too many other batches are waiting."""
        self._waiting.append((events, batch))
        if not self._busy:
            self._busy = True
            self._background.begin(self._process(), f"events: {self._kind}")
        while len(self._waiting) > _MAX_WAITING:
            self._room.clear()
            await self._room.wait()

    async def _process(self) -> None:
        try:
            while self._waiting:
                batches, self._waiting = self._waiting, []
                self._room.set()
                await handle_patiently(self._handle, [event for events, _ in batches for event in events], self._kind)
                for _, batch in batches:
                    batch.part_done()
        finally:
            self._busy = False


async def handle_patiently(handle: Handle[EventT], events: Sequence[EventT], kind: str) -> None:
    """Do what events ask for; if that keeps failing, leave it: whoever asks looks again later."""
    backoff = Backoff(*_BACKOFF_S)
    for _ in range(_TRIES):
        try:
            await handle(events)
            return
        except Exception as error:
            _log.warning("events_postponed", kind=kind, events=len(events), error=error)
            await backoff.pause()
