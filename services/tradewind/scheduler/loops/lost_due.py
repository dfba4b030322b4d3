"""Begins again what was due shortly before the store was lost.

The trigger service was told that it had begun. If that service's store is another one, or another master of a cluster,
it does not bring it again.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import structlog

from tradewind.scheduler.domain.due import DueFlow
from tradewind.scheduler.ports.owning import NOT_OWNER
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.begin_due import BeginDue
from tradewind.scheduler.use_cases.hand_over import HandOver

_RECENT_S = 60
"""More than a store loses: the last second or two of its disk, or by how much a replica lags behind."""
_MOST, _MOST_BYTES = 10_000, 64 * 1024 * 1024
_AT_ONCE = 500
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class LostDue:
    """Doing it again is harmless: what the store still has is not begun a second time, by whichever replica."""

    def __init__(self, begin_due: BeginDue, hand_over: HandOver, background: Background) -> None:
        self._begin_due = begin_due
        self._hand_over = hand_over
        self._background = background
        self._recent: deque[tuple[float, DueFlow]] = deque()
        self._bytes = 0
        self._doubtful: list[DueFlow] = []
        self._lost = asyncio.Event()

    def note(self, due: Iterable[DueFlow]) -> None:
        """Remember flows that were found due, and whose triggers are about to be answered."""
        now_s = asyncio.get_running_loop().time()
        for flow in due:
            self._recent.append((now_s, flow))
            self._bytes += _size(flow)
        while self._recent and (
            self._recent[0][0] < now_s - _RECENT_S or len(self._recent) > _MOST or self._bytes > _MOST_BYTES
        ):
            self._bytes -= _size(self._recent.popleft()[1])

    def store_lost(self) -> None:
        """Note that the store may come back without the latest writes."""
        oldest_s = asyncio.get_running_loop().time() - _RECENT_S
        self._doubtful += [flow for noted_s, flow in self._recent if noted_s >= oldest_s]
        self._recent.clear()
        self._bytes = 0
        if self._doubtful:
            self._lost.set()

    async def run(self) -> None:
        """Run forever."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            while self._doubtful:
                some = self._doubtful[:_AT_ONCE]
                try:
                    # As it was judged then; the partition need not be this replica's any more.
                    begun = await self._begin_due(list(map(_as_then, some)), NOT_OWNER)
                except Exception as error:
                    _log.debug("lost_due_flows_not_begun", flows=len(some), error=str(error))
                    await asyncio.sleep(_RETRY_S)
                    continue
                del self._doubtful[: len(some)]
                if begun.runs:
                    _log.warning("lost_due_flows_begun_again", cycles=len(begun.runs))
                    self._background.begin(self._hand_over(begun.runs), "handing over of lost cycles")


def _as_then(flow: DueFlow) -> DueFlow:
    return replace(flow, now_ms=max(flow.now_ms, flow.planned_ms))


def _size(flow: DueFlow) -> int:
    return len(flow.event.payload_json) if flow.event is not None else 0
