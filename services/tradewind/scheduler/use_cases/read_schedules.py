"""Reads the planned times of flows that are still to come, and the outcomes of those that have passed."""

from itertools import islice

from tradewind.scheduler.domain.firing import Firing
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.ports.firings import Firings
from tradewind.scheduler.use_cases.planned_times import planned_times
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.clock import Clock


class ReadSchedules:
    """Looks ahead by the definition, and looks back by the record."""

    def __init__(self, read: ReadFlows, firings: Firings, clock: Clock) -> None:
        self._read = read
        self._firings = firings
        self._clock = clock

    async def upcoming(self, flow_id: str, count: int) -> tuple[FlowRecord, list[int]]:
        """Return a flow and up to `count` of its next planned times.

        For a flow that is not running, they are the times as if it were started or resumed now. Raises NotFound.
        """
        flow = await self._read.flow(flow_id)
        return flow, list(islice(planned_times(flow, self._clock.now_ms()), count))

    async def firings(self, flow_id: str, before_ms: int, limit: int, backfill_id: int = 0) -> tuple[list[Firing], int]:
        """Return the outcomes of planned times, latest first, and the next page's `before_ms`, 0 for none.

        They are those of the flow, or of one backfill. Raises NotFound.
        """
        await self._read.flow(flow_id)
        found = await self._firings.newest(flow_id, before_ms, limit + 1, backfill_id)
        more = len(found) > limit
        return found[:limit], found[limit - 1].planned_ms if more else 0
