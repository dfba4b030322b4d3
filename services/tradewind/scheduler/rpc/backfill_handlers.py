"""The part of SchedulerService for backfills: parse, call the use case, answer."""

from dataclasses import dataclass

from tradewind.api.scheduler.v1 import backfill_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.scheduler.domain.backfill import MAX_RUNNING, Backfill, BackfillStatus
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.json_text import canonical_json, digest_of
from tradewind.scheduler.rpc.checks import actor_and_reason, text
from tradewind.scheduler.rpc.times import ms_of
from tradewind.scheduler.use_cases.backfill_flows import BackfillFlows
from tradewind.server.access.identity import request_owner
from tradewind.server.all_faults import every, require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import request_id_faults, require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_token
from tradewind.server.reasons import iso
from tradewind.server.timestamps import set_timestamp

_STATUS = {
    BackfillStatus.RUNNING: pb2.BACKFILL_STATUS_RUNNING,
    BackfillStatus.COMPLETED: pb2.BACKFILL_STATUS_COMPLETED,
    BackfillStatus.CANCELLED: pb2.BACKFILL_STATUS_CANCELLED,
}


@dataclass(eq=False, kw_only=True)
class BackfillHandlers(pb2_grpc.SchedulerServiceServicer):
    """The calls about backfills."""

    backfills: BackfillFlows

    async def BackfillFlow(self, request: pb2.BackfillFlowRequest, context: Context) -> pb2.BackfillFlowResponse:
        _, by, (start_ms, end_ms), _, most = every(
            lambda: require_identifiers(flow_id=request.flow_id),
            lambda: text("by", request.by, 128),
            lambda: _range(request),
            lambda: require(request_id_faults(request.request_id)),
            lambda: _max_running(request.max_running),
        )
        remembered = None
        if request.request_id:
            payload = digest_of(canonical_json(["backfill", request.flow_id, start_ms, end_ms, most]))
            remembered = RememberedRequest(request_owner(), request.flow_id, request.request_id, payload)
        created = await self.backfills.create(request.flow_id, start_ms, end_ms, most, by or "user", remembered)
        return pb2.BackfillFlowResponse(backfill=_message(created))

    async def ListBackfills(self, request: pb2.ListBackfillsRequest, context: Context) -> pb2.ListBackfillsResponse:
        below, limit = page_of(request, int, flow_id=request.flow_id)
        found, following = await self.backfills.page(request.flow_id, below or 0, limit)
        return pb2.ListBackfillsResponse(
            backfills=[_message(each) for each in found], next_page_token=page_token(following or None)
        )

    async def GetBackfill(self, request: pb2.GetBackfillRequest, context: Context) -> pb2.GetBackfillResponse:
        require_identifiers(flow_id=request.flow_id)
        return pb2.GetBackfillResponse(
            backfill=_message(await self.backfills.get(request.flow_id, request.backfill_id))
        )

    async def CancelBackfill(self, request: pb2.CancelBackfillRequest, context: Context) -> pb2.CancelBackfillResponse:
        by, reason = actor_and_reason(request)
        cancelled = await self.backfills.cancel(request.flow_id, request.backfill_id, by, reason)
        return pb2.CancelBackfillResponse(backfill=_message(cancelled))


def _range(request: pb2.BackfillFlowRequest) -> tuple[int, int]:
    """Return the bounds of the range to fill, in ms. Raises InvalidInput."""
    start_ms, end_ms = every(lambda: ms_of(request, "start"), lambda: ms_of(request, "end"))
    require([Violation(name, "is required") for name, at_ms in (("start", start_ms), ("end", end_ms)) if not at_ms])
    if end_ms <= start_ms:
        raise InvalidInput([Violation("end", f"must be after start, {iso(start_ms)}; is {iso(end_ms)}")])
    return start_ms, end_ms


def _max_running(requested: int) -> int:
    """Return how many cycles may run at a time, 1 unless requested otherwise. Raises InvalidInput."""
    if not 0 <= requested <= MAX_RUNNING:
        raise InvalidInput([Violation("max_running", f"must be 1 to {MAX_RUNNING}, is {requested}")])
    return requested or 1


def _message(backfill: Backfill) -> pb2.Backfill:
    draft = backfill.draft
    message = pb2.Backfill(
        flow_id=draft.flow_id,
        backfill_id=backfill.backfill_id,
        status=_STATUS[backfill.status],
        max_running=draft.max_running,
        times=draft.times,
        begun=backfill.begun,
        skipped=backfill.skipped,
        expired=backfill.expired,
        running=backfill.running,
        completed=backfill.completed,
        failed=backfill.failed,
        by=draft.by,
        reason=backfill.reason,
    )
    set_timestamp(message.start, draft.from_ms)
    set_timestamp(message.end, draft.to_ms)
    set_timestamp(message.created_at, backfill.created_ms)
    if backfill.position_ms:
        set_timestamp(message.position, backfill.position_ms)
    if backfill.ended_ms:
        set_timestamp(message.ended_at, backfill.ended_ms)
    return message
