"""The part of SchedulerService for bulk jobs."""

from dataclasses import dataclass, replace

from tradewind.api.scheduler.v1 import job_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.scheduler.domain.bulk_job import DEFAULT_STATUSES, BulkAction, BulkFilter, BulkJob, BulkStatus
from tradewind.scheduler.rpc import cycle_mapping
from tradewind.scheduler.rpc.checks import chosen, text
from tradewind.scheduler.rpc.times import ms_of
from tradewind.scheduler.use_cases.manage_bulk_jobs import ManageBulkJobs
from tradewind.server.all_faults import every, require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import request_id_faults, require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_token
from tradewind.server.timestamps import set_timestamp

MAX_PATTERNS = 1000
LIMIT, MAX_CYCLES = 1000, 100_000
_ACTION = {BulkAction.RERUN: pb2.BULK_ACTION_RERUN, BulkAction.STOP: pb2.BULK_ACTION_STOP}
_ACTION_OF = {number: action for action, number in _ACTION.items()}
_STATUS = {
    BulkStatus.RUNNING: pb2.BULK_JOB_STATUS_RUNNING,
    BulkStatus.COMPLETED: pb2.BULK_JOB_STATUS_COMPLETED,
    BulkStatus.CANCELLED: pb2.BULK_JOB_STATUS_CANCELLED,
}


@dataclass(eq=False, kw_only=True)
class JobHandlers(pb2_grpc.SchedulerServiceServicer):
    """Bulk jobs: any replica answers any call; the owner of a job's partition carries it out."""

    jobs: ManageBulkJobs

    async def StartBulkJob(self, request: pb2.StartBulkJobRequest, context: Context) -> pb2.StartBulkJobResponse:
        action, wanted, _, by, reason = every(
            lambda: _action(request),
            lambda: _filter(request.filter),
            lambda: require(request_id_faults(request.request_id)),
            lambda: text("by", request.by, 128),
            lambda: text("reason", request.reason, 1024),
        )
        job = await self.jobs.start(
            action,
            replace(wanted, statuses=wanted.statuses or DEFAULT_STATUSES[action]),
            dry_run=request.dry_run,
            by=by or "user",
            reason=reason,
            request_id=request.request_id,
        )
        return pb2.StartBulkJobResponse(job=_job(job))

    async def GetBulkJob(self, request: pb2.GetBulkJobRequest, context: Context) -> pb2.GetBulkJobResponse:
        require_identifiers(job_id=request.job_id)
        return pb2.GetBulkJobResponse(job=_job(await self.jobs.find(request.job_id)))

    async def ListBulkJobs(self, request: pb2.ListBulkJobsRequest, context: Context) -> pb2.ListBulkJobsResponse:
        below, limit = page_of(request, tuple[int, str])
        found = await self.jobs.newest(below, limit)
        following = (found[-1].created_ms, found[-1].job_id) if len(found) == limit else None
        return pb2.ListBulkJobsResponse(jobs=[_job(job) for job in found], next_page_token=page_token(following))

    async def CancelBulkJob(self, request: pb2.CancelBulkJobRequest, context: Context) -> pb2.CancelBulkJobResponse:
        require_identifiers(job_id=request.job_id)
        return pb2.CancelBulkJobResponse(job=_job(await self.jobs.cancel(request.job_id)))


def _action(request: pb2.StartBulkJobRequest) -> BulkAction:
    """Return the action of a request. Raises InvalidInput."""
    action = _ACTION_OF.get(request.action)
    if action is None:
        raise InvalidInput([Violation("action", "is required; use BULK_ACTION_RERUN or BULK_ACTION_STOP")])
    return action


def _filter(given: pb2.BulkFilter) -> BulkFilter:
    """Return the filter of a request, with the statuses that it names. Raises InvalidInput with every fault."""
    _, statuses, after_ms, before_ms = every(
        lambda: require(_filter_faults(given)),
        lambda: chosen("filter.statuses", given.statuses, cycle_mapping.STATUS_OF_CYCLE),
        lambda: ms_of(given, "started_after", "filter."),
        lambda: ms_of(given, "started_before", "filter."),
    )
    return BulkFilter(tuple(given.flow_ids), tuple(sorted(statuses)), after_ms, before_ms, given.limit or LIMIT)


def _filter_faults(given: pb2.BulkFilter) -> list[Violation]:
    faults = []
    if not 1 <= len(given.flow_ids) <= MAX_PATTERNS:
        faults.append(Violation("filter.flow_ids", f"must hold 1 to {MAX_PATTERNS}, holds {len(given.flow_ids)}"))
    faults += [
        Violation(f"filter.flow_ids[{place}]", "must have 1 to 128 characters")
        for place, each in enumerate(given.flow_ids)
        if not 1 <= len(each) <= 128
    ]
    if not 0 <= given.limit <= MAX_CYCLES:
        faults.append(Violation("filter.limit", f"must be 0 to {MAX_CYCLES}, is {given.limit}"))
    return faults


def _job(job: BulkJob) -> pb2.BulkJob:
    message = pb2.BulkJob(
        job_id=job.job_id,
        action=_ACTION[job.action],
        filter=pb2.BulkFilter(
            flow_ids=job.filter.flow_ids,
            statuses=[cycle_mapping.CYCLE_STATUS[status] for status in job.filter.statuses],
            limit=job.filter.limit,
        ),
        dry_run=job.dry_run,
        status=_STATUS[job.status],
        matched=job.matched,
        done=job.done,
        failed=job.failed,
        items=[
            pb2.BulkItem(
                flow_id=item.flow_id,
                cycle=item.cycle,
                run=item.run,
                error_reason=item.reason,
                error_message=item.message,
            )
            for item in job.items
        ],
        by=job.by,
        reason=job.reason,
    )
    set_timestamp(message.created_at, job.created_ms)
    set_timestamp(message.filter.started_before, job.filter.started_before_ms)
    if job.filter.started_after_ms:
        set_timestamp(message.filter.started_after, job.filter.started_after_ms)
    if job.ended_ms:
        set_timestamp(message.ended_at, job.ended_ms)
    return message
