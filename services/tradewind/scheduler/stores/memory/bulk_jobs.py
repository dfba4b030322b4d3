"""Bulk jobs in memory."""

from collections.abc import Collection
from dataclasses import replace

from tradewind.scheduler.domain.bulk_job import BulkJob, BulkStatus
from tradewind.scheduler.stores.memory.data import RETENTION_MS, Data
from tradewind.server.partitions import partition_of


class MemoryBulkJobs:
    """Implements BulkJobs."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._jobs = data.jobs

    def _known(self) -> dict[str, tuple[BulkJob, str]]:
        now = self._data.now()
        gone = [name for name, (job, _) in self._jobs.items() if job.ended_ms and job.ended_ms + RETENTION_MS <= now]
        for name in gone:
            del self._jobs[name]
        return self._jobs

    async def create(self, job: BulkJob, payload: str) -> tuple[bool, BulkJob | None]:
        known = self._known().get(job.job_id)
        if known is not None:
            return False, known[0] if known[1] == payload else None
        self._jobs[job.job_id] = (job, payload)
        return True, job

    async def find(self, job_id: str) -> BulkJob | None:
        known = self._known().get(job_id)
        return known[0] if known else None

    async def save(self, job: BulkJob) -> bool:
        known = self._known().get(job.job_id)
        if known is None or known[0].version != job.version:
            return False
        self._jobs[job.job_id] = (replace(job, version=job.version + 1), known[1])
        return True

    async def open(self, partitions: Collection[int]) -> list[str]:
        jobs = sorted((job.created_ms, name) for name, (job, _) in self._known().items() if _is_open(job))
        return [name for _, name in jobs if partition_of(name) in partitions]

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        jobs = sorted(((job.created_ms, name) for name, (job, _) in self._known().items()), reverse=True)
        return [self._jobs[name][0] for at, name in jobs if before is None or (at, name) < before][:limit]


def _is_open(job: BulkJob) -> bool:
    return job.status is BulkStatus.RUNNING
