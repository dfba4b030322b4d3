"""Handles the events of nodes that run flows, beside those of components."""

import asyncio

import structlog

from tradewind.scheduler.domain.sub_flow import SubFlowEvent
from tradewind.scheduler.loops.acknowledging import Batch
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.server.backoff import Backoff

_BACKOFF_S = (0.05, 2.0)
_TRIES = 8
_MAX_WAITING = 100
"""The most batches that may wait to be handled before `put` waits."""

_log = structlog.get_logger(__name__)


class SubFlowQueue:
    """Handles the events of nodes that run flows, in order, while ends of components are folded.

    Beginning a cycle takes calls to other services, and ends must not wait for them: ends wait only while too many
    batches wait here.
    """

    def __init__(self, sub_flows: SubFlows, background: Background) -> None:
        self._sub_flows = sub_flows
        self._background = background
        self._waiting: list[tuple[list[SubFlowEvent], Batch]] = []
        self._room = asyncio.Event()
        self._busy = False

    async def put(self, events: list[SubFlowEvent], batch: Batch) -> None:
        """Handle these events soon, as a part of their batch; wait while too many other batches are waiting."""
        self._waiting.append((events, batch))
        if not self._busy:
            self._busy = True
            self._background.begin(self._process(), "sub-flows")
        while len(self._waiting) > _MAX_WAITING:
            self._room.clear()
            await self._room.wait()

    async def _process(self) -> None:
        try:
            while self._waiting:
                batches, self._waiting = self._waiting, []
                self._room.set()
                await handle_sub_flows(self._sub_flows, [event for events, _ in batches for event in events])
                for _, batch in batches:
                    batch.part_done()
        finally:
            self._busy = False


async def handle_sub_flows(sub_flows: SubFlows, events: list[SubFlowEvent]) -> None:
    """Do what events ask for; if that keeps failing, leave it to SuperviseRuns."""
    backoff = Backoff(*_BACKOFF_S)
    for _ in range(_TRIES):
        try:
            await sub_flows.handle(events)
            return
        except Exception as error:
            _log.warning("sub_flow_events_postponed", events=len(events), error=error)
            await backoff.pause()
