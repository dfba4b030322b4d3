"""Bulk jobs on record."""

from collections.abc import Collection
from typing import Protocol

from tradewind.scheduler.domain.bulk_job import BulkJob


class BulkJobs(Protocol):
    """Bulk jobs, each in the partition of its id, whose owner carries it out. Errors of the store pass through."""

    async def create(self, job: BulkJob, payload: str) -> tuple[bool, BulkJob | None]:
        """Put a job on record; return whether it is new, and the job on record, None if that has another payload."""
        ...

    async def find(self, job_id: str) -> BulkJob | None:
        """Return a job, None when it is not on record; an ended job stays for 7 days."""
        ...

    async def save(self, job: BulkJob) -> bool:
        """Write a job over the version that it carries; False when the record has another version or is gone."""
        ...

    async def open(self, partitions: Collection[int]) -> list[str]:
        """Return the ids of jobs that have not ended, up to 100 of each partition, oldest first."""
        ...

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        """Return up to `limit` jobs of all partitions, newest first, from below the creation time and id `before`."""
        ...
