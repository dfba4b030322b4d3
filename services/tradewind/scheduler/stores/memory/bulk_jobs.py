"""Bulk jobs in memory."""

from collections.abc import Collection
from dataclasses import replace

from tradewind.scheduler.domain.bulk_job import BulkJob, BulkStatus
from tradewind.scheduler.stores.memory.data import Data
from tradewind.server.partitions import partition_of

_MAX_OPEN = 100


class MemoryBulkJobs:
    """Implements BulkJobs."""

    def __init__(self, data: Data) -> None:
        self._data = data

    def _known(self) -> dict[str, tuple[BulkJob, str]]:
        self._data.now()
        return self._data.jobs

    async def create(self, job: BulkJob, payload: str) -> tuple[bool, BulkJob | None]:
        jobs = self._known()
        if job.job_id in jobs:
            known, known_payload = jobs[job.job_id]
            return False, known if known_payload == payload else None
        jobs[job.job_id] = (job, payload)
        return True, job

    async def find(self, job_id: str) -> BulkJob | None:
        known = self._known().get(job_id)
        return known[0] if known else None

    async def save(self, job: BulkJob) -> bool:
        jobs = self._known()
        known = jobs.get(job.job_id)
        if known is None or known[0].version != job.version:
            return False
        jobs[job.job_id] = (replace(job, version=job.version + 1), known[1])
        return True

    async def open(self, partitions: Collection[int]) -> list[str]:
        jobs = sorted((job for job, _ in self._known().values() if job.status is BulkStatus.RUNNING), key=_creation)
        found: list[str] = []
        for partition in partitions:
            found += [job.job_id for job in jobs if partition_of(job.job_id) == partition][:_MAX_OPEN]
        return found

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        jobs = [job for job, _ in self._known().values() if before is None or _creation(job) < before]
        return sorted(jobs, key=_creation, reverse=True)[:limit]


def _creation(job: BulkJob) -> tuple[int, str]:
    return job.created_ms, job.job_id
