"""What a client asks the scheduler about schedules."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.firings import FiringRecord, firing_from
from tradewind.client.flows import FlowRecord, flow_from
from tradewind.client.messages import build

_PAGE = 100


class ScheduleCalls:
    """The part of Client that pauses and resumes flows, and looks ahead and back along their schedules."""

    _connection: Connection
    _user_id: str

    async def pause_flow(self, flow_id: str, *, note: str = "") -> FlowRecord:
        """Pause a flow: its schedule begins no cycle until it is resumed; running ones go on.

        `run_flow`, `rerun_cycle` and nodes of other flows still begin cycles.

        Raises NotFound, WrongStatus for a flow that is not running.
        """
        request = build(pb.PauseFlowRequest, flow_id=flow_id, note=note, by=self._user_id)
        answer = await self._connection.call(self._connection.scheduler.PauseFlow, request)
        return flow_from(answer.flow)

    async def resume_flow(self, flow_id: str) -> FlowRecord:
        """Resume a paused flow, from its next planned time on.

        Raises NotFound, WrongStatus for a flow that is not paused or whose schedule plans nothing any more.
        """
        request = build(pb.ResumeFlowRequest, flow_id=flow_id)
        answer = await self._connection.call(self._connection.scheduler.ResumeFlow, request)
        return flow_from(answer.flow)

    async def list_firings(self, flow_id: str, *, backfill_id: int = 0) -> AsyncIterator[FiringRecord]:
        """Yield what became of a flow's planned times, or events, latest first; the newest 1000 are kept.

        With `backfill_id`, yield those of that backfill, all of which are kept as long as it is. Raises NotFound.
        """
        request = build(pb.ListFiringsRequest, flow_id=flow_id, page_size=_PAGE, backfill_id=backfill_id)
        async for page in self._connection.pages(self._connection.scheduler.ListFirings, request):
            for firing in page.firings:
                yield firing_from(firing)

    async def next_executions(self, flow_id: str, count: int = 10) -> list[datetime]:
        """Return the next planned times of a flow, at most `count`; fewer if its schedule ends.

        For a flow that is not running, these are the times it would have if it were started now; a flow that begins on
        events has none. Raises NotFound.
        """
        request = build(pb.ListNextExecutionsRequest, flow_id=flow_id, count=count)
        answer = await self._connection.call(self._connection.scheduler.ListNextExecutions, request)
        return [planned.ToDatetime(tzinfo=UTC) for planned in answer.planned_times]
