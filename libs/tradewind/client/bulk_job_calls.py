"""What a client asks the scheduler about bulk jobs."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from tradewind.api.scheduler.v1 import cycle_pb2, job_pb2
from tradewind.client.bulk_jobs import BulkAction, BulkJob, job_from
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.cycles import CycleStatus
from tradewind.client.errors import TimedOut
from tradewind.client.following import PATIENCE
from tradewind.client.messages import build
from tradewind.client.wire import Seconds, as_list, number_of, numbers_of, seconds_of, timestamp

_PAGE = 100
_POLL_S = 0.2


class BulkJobCalls:
    """Starting, following and cancelling jobs."""

    _connection: Connection
    _user_id: str

    async def start_bulk_job(
        self,
        action: BulkAction | str,
        flow_ids: Iterable[str],
        *,
        statuses: Iterable[CycleStatus | str] = (),
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        limit: int = 0,
        dry_run: bool = False,
        reason: str = "",
        request_id: str | None = None,
    ) -> BulkJob:
        """Rerun or stop the matching cycles of flows, named by id or pattern (`*`, `?`), as a job that runs by itself.

        Without `statuses`, a rerun takes failed, partial and timeout cycles, a stop running ones. Raises InvalidInput,
        Conflict.
        """
        numbers = numbers_of(cycle_pb2.CycleStatus, statuses)
        request = build(
            job_pb2.StartBulkJobRequest,
            action=number_of(job_pb2.BulkAction, action),
            filter=build(
                job_pb2.BulkFilter,
                flow_ids=as_list(flow_ids),
                statuses=numbers,
                started_after=timestamp(started_after),
                started_before=timestamp(started_before),
                limit=limit,
            ),
            dry_run=dry_run,
            request_id=request_id or new_request_id(),
            by=self._user_id,
            reason=reason,
        )
        answer = await self._connection.call(self._connection.scheduler.StartBulkJob, request)
        return job_from(answer.job)

    async def get_bulk_job(self, job_id: str) -> BulkJob:
        """Return a job. Raises NotFound."""
        return await self._job(job_id)

    async def wait_bulk_job(self, job_id: str, timeout: Seconds | None = None) -> BulkJob:
        """Return a job once it has ended. Raises NotFound, TimedOut when it has not ended after `timeout`."""
        seconds = None if timeout is None else seconds_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                job = await self._job(job_id)
                while not job.ended:
                    await asyncio.sleep(_POLL_S)
                    job = await self._job(job_id, PATIENCE)
                return job
        except TimeoutError:
            raise TimedOut(f"{job_id} is still running after {seconds:g} s and continues") from None

    async def _job(self, job_id: str, patience: float = 0.0) -> BulkJob:
        request = build(job_pb2.GetBulkJobRequest, job_id=job_id)
        answer = await self._connection.call(self._connection.scheduler.GetBulkJob, request, patience=patience)
        return job_from(answer.job)

    async def list_bulk_jobs(self) -> AsyncIterator[BulkJob]:
        """Yield the jobs on record, newest first."""
        request = job_pb2.ListBulkJobsRequest(page_size=_PAGE)
        async for page in self._connection.pages(self._connection.scheduler.ListBulkJobs, request):
            for job in page.jobs:
                yield job_from(job)

    async def cancel_bulk_job(self, job_id: str) -> BulkJob:
        """Cancel a job; what it has done stays done. Raises NotFound, and Aborted when the job kept changing."""
        request = build(job_pb2.CancelBulkJobRequest, job_id=job_id)
        answer = await self._connection.call(self._connection.scheduler.CancelBulkJob, request)
        return job_from(answer.job)
