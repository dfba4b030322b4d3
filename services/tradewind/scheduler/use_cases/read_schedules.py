"""Answers when cycles are planned, and what became of planned times."""

from collections.abc import Iterator
from itertools import islice

from tradewind.scheduler.domain.firing import Firing
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.ports import Firings
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.clock import Clock


class ReadSchedules:
    """Looks ahead by the definition, and back by the record."""

    def __init__(self, read: ReadFlows, firings: Firings, clock: Clock) -> None:
        self._read = read
        self._firings = firings
        self._clock = clock

    async def upcoming(self, flow_id: str, count: int) -> tuple[FlowRecord, list[int]]:
        """Return a flow and its next planned times, at most `count`.

        Those of a flow that is not running are what it would plan if it were started, or resumed, now. Raises NotFound.
        """
        flow = await self._read.flow(flow_id)
        return flow, list(islice(_planned(flow, self._clock.now_ms()), count))

    async def firings(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> tuple[list[Firing], int]:
        """Return what became of planned times, the latest first, and before which the next page begins, 0 for none.

        Those of the flow, or of one backfill.

        Raises NotFound.
        """
        await self._read.flow(flow_id)
        found = await self._firings.newest(flow_id, before_ms, limit + 1, backfill_id)
        more = len(found) > limit
        return found[:limit], found[limit - 1].planned_ms if more else 0


def _planned(flow: FlowRecord, now_ms: int) -> Iterator[int]:
    running = flow.status is FlowStatus.RUNNING
    if running and not flow.next_execution_ms:
        return
    from_ms = flow.next_execution_ms if running else flow.pause.next_ms if flow.pause else now_ms
    planned = flow.schedule.planned(from_ms)
    following = planned.after((from_ms if running else max(from_ms, now_ms)) - 1)
    while following is not None:
        yield following
        following = planned.after(following)
