"""Bulk jobs in Redis."""

from collections.abc import Collection
from dataclasses import replace

import msgspec

from tradewind.scheduler.domain.bulk_job import BulkJob, BulkStatus
from tradewind.scheduler.stores.redis.scripts import RETENTION_MS, Scripted, script
from tradewind.server.partitions import PARTITIONS, partition_of

_MAX_OPEN = 100
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BulkJob).decode


_SAVE = script("save_job", tuple[bool, str])


class RedisBulkJobs:
    """Implements BulkJobs."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys

    async def create(self, job: BulkJob, payload: str) -> tuple[bool, BulkJob | None]:
        written, known = await self._write(job, 0, payload)
        if written:
            return True, job
        return False, _decode(known) if known else None

    async def save(self, job: BulkJob) -> bool:
        written, _ = await self._write(replace(job, version=job.version + 1), job.version, "")
        return written

    async def _write(self, job: BulkJob, version: int, payload: str) -> tuple[bool, str]:
        partition, keys = partition_of(job.job_id), self._keys
        return await self._scripted.call_for_partition(
            _SAVE,
            partition,
            keys.job(job.job_id),
            keys.jobs(partition),
            keys.open_jobs(partition),
            job_id=job.job_id,
            version=version,
            job=_encode(job).decode(),
            payload=payload,
            created=job.created_ms,
            open=job.status is BulkStatus.RUNNING,
            retention=RETENTION_MS,
        )

    async def find(self, job_id: str) -> BulkJob | None:
        text = await self._client.hget(self._keys.job(job_id), "job")
        return None if text is None else _decode(text)

    async def open(self, partitions: Collection[int]) -> list[str]:
        keys = [self._keys.open_jobs(each) for each in partitions]
        found = await self._scripted.first_of(keys, _MAX_OPEN, lambda job_id, _: job_id)
        return [job_id for jobs in found for job_id in jobs]

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        pipeline = self._client.pipeline(transaction=False)
        highest = "+inf" if before is None else before[0]
        for partition in range(PARTITIONS):
            # Jobs created at the same moment as the last job of the previous page may be on either side of it.
            pipeline.execute_command(
                "ZREVRANGEBYSCORE", self._keys.jobs(partition), highest, "-inf", "LIMIT", 0, limit + 100
            )
        names = [name.decode() for found in await pipeline.execute() for name in found]
        jobs = [job for job in await self._load(names) if before is None or (job.created_ms, job.job_id) < before]
        return sorted(jobs, key=lambda job: (job.created_ms, job.job_id), reverse=True)[:limit]

    async def _load(self, names: list[str]) -> list[BulkJob]:
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.hget(self._keys.job(name), "job")
        return [_decode(text) for text in await pipeline.execute() if text is not None] if names else []
