"""Starts, reads and cancels bulk jobs."""

from dataclasses import asdict, replace

from tradewind.scheduler.domain.bulk_job import BulkAction, BulkFilter, BulkJob, BulkStatus
from tradewind.scheduler.domain.json_text import canonical_json, digest_of
from tradewind.scheduler.ports.bulk_jobs import BulkJobs
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.faults import kept_changing, request_id_reused
from tradewind.server.clock import Clock
from tradewind.server.faults import NotFound
from tradewind.server.identifiers import new_run_id

_TRIES = 20


class ManageBulkJobs:
    """Answers calls about jobs, on any replica; `wake` wakes the replica that carries a job out."""

    def __init__(self, jobs: BulkJobs, wake: WakeOwner, clock: Clock) -> None:
        self._jobs = jobs
        self._wake = wake
        self._clock = clock

    async def start(
        self, action: BulkAction, wanted: BulkFilter, *, dry_run: bool, by: str, reason: str, request_id: str
    ) -> BulkJob:
        """Put a job on record and return it; the same request_id gives the same job. Raises Conflict."""
        now_ms = self._clock.now_ms()
        payload = digest_of(canonical_json([action, asdict(wanted), dry_run, by, reason]))[:32]
        job_id = f"job-{digest_of(request_id)[:16] if request_id else new_run_id()}"
        wanted = replace(wanted, started_before_ms=wanted.started_before_ms or now_ms + 1)
        _, job = await self._jobs.create(BulkJob(job_id, action, wanted, dry_run, by, reason, now_ms), payload)
        if job is None:
            raise request_id_reused(request_id)
        self._wake(Work.JOBS, job.job_id, 0)
        return job

    async def find(self, job_id: str) -> BulkJob:
        """Return a job. Raises NotFound."""
        job = await self._jobs.find(job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        """Return jobs, the newest first."""
        return await self._jobs.newest(before, limit)

    async def cancel(self, job_id: str) -> BulkJob:
        """End a job; what it has done stays done. An ended job is left as it is.

        Raises NotFound, Aborted when the job kept changing.
        """
        for _ in range(_TRIES):
            job = await self.find(job_id)
            if job.status is not BulkStatus.RUNNING:
                return job
            if await self._jobs.save(job.ended(BulkStatus.CANCELLED, self._clock.now_ms())):
                return await self.find(job_id)
        raise kept_changing(f'job "{job_id}"', job_id=job_id)
