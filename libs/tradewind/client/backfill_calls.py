"""What a client asks the scheduler about backfills."""

from collections.abc import AsyncIterator
from datetime import datetime

from tradewind.api.scheduler.v1 import backfill_pb2 as pb
from tradewind.client.backfills import BackfillRecord, backfill_from
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.wire import timestamp

_PAGE = 100


class BackfillCalls:
    """The part of Client that runs flows for past ranges of time."""

    _connection: Connection
    _user_id: str

    async def backfill_flow(
        self, flow_id: str, start: datetime, end: datetime, *, max_running: int = 1, request_id: str | None = None
    ) -> BackfillRecord:
        """Run a cycle for each time that the flow's schedule plans from `start` on and before `end`, oldest first.

        Up to `max_running` of them, at most 50, run at once, in addition to the schedule's own cycles. Times that
        already have a cycle are skipped. Raises NotFound, InvalidInput for a range with no planned times or more than
        10 000, or one in the future, and Exhausted when five backfills of the flow are under way.
        """
        request = build(
            pb.BackfillFlowRequest,
            flow_id=flow_id,
            start=timestamp(start),
            end=timestamp(end),
            max_running=max_running,
            request_id=request_id or new_request_id(),
            by=self._user_id,
        )
        answer = await self._connection.call(self._connection.scheduler.BackfillFlow, request)
        return backfill_from(answer.backfill)

    async def list_backfills(self, flow_id: str) -> AsyncIterator[BackfillRecord]:
        """Yield the backfills of a flow, newest first; they are kept for 7 days after they end. Raises NotFound."""
        request = build(pb.ListBackfillsRequest, flow_id=flow_id, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.scheduler.ListBackfills, request):
            for backfill in page.backfills:
                yield backfill_from(backfill)

    async def get_backfill(self, flow_id: str, backfill_id: int) -> BackfillRecord:
        """Return a backfill of a flow as it is now. Raises NotFound."""
        request = build(pb.GetBackfillRequest, flow_id=flow_id, backfill_id=backfill_id)
        answer = await self._connection.call(self._connection.scheduler.GetBackfill, request)
        return backfill_from(answer.backfill)

    async def cancel_backfill(self, flow_id: str, backfill_id: int, *, reason: str = "") -> BackfillRecord:
        """Begin no more cycles of a backfill; running ones go on. An ended backfill is unchanged. Raises NotFound."""
        request = build(
            pb.CancelBackfillRequest, flow_id=flow_id, backfill_id=backfill_id, reason=reason, by=self._user_id
        )
        answer = await self._connection.call(self._connection.scheduler.CancelBackfill, request)
        return backfill_from(answer.backfill)
