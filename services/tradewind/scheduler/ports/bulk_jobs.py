"""Bulk jobs on record."""

from collections.abc import Collection
from typing import Protocol

from tradewind.scheduler.domain.bulk_job import BulkJob


class BulkJobs(Protocol):
    """A job stands in the partition of its id, whose owner carries it out. Errors of the store pass through."""

    async def create(self, job: BulkJob, payload: str) -> tuple[bool, BulkJob | None]:
        """Put a job on record; return whether that was new, and the job of this id, None for another payload."""
        ...

    async def find(self, job_id: str) -> BulkJob | None:
        """Return a job, None when it is not on record; an ended one stays for 7 days."""
        ...

    async def save(self, job: BulkJob) -> bool:
        """Write a job over the version that it carries; False when the record has another, or there is none."""
        ...

    async def open(self, partitions: Collection[int]) -> list[str]:
        """Return the ids of jobs that have not ended, at most 100 of each partition, the oldest first."""
        ...

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        """Return up to `limit` jobs over all partitions, the newest first, from before one by its creation and id."""
        ...
