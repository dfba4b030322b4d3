"""Bulk jobs in Redis."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tradewind.scheduler.domain.bulk_job import BulkJob, BulkStatus
from tradewind.scheduler.stores.redis.scripts import RETENTION_MS, Scripted, script
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import PARTITIONS, partition_of
from tradewind.server.reading import UnreadableLog, reading
from tradewind.server.redis.records import read_each

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
        self._unreadable = UnreadableLog(__name__)

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
        (job,) = await self._read([job_id])
        if isinstance(job, Unreadable):
            raise job
        return job

    async def open(self, partitions: Collection[int]) -> list[str]:
        keys = [self._keys.open_jobs(each) for each in partitions]
        found = await self._scripted.first_of(keys, _MAX_OPEN, lambda job_id, _: job_id)
        return [job_id for jobs in found for job_id in jobs]

    async def newest(self, before: tuple[int, str] | None, limit: int) -> list[BulkJob]:
        indexes = [self._keys.jobs(partition) for partition in range(PARTITIONS)]
        # Jobs created at the same moment as the last job of the previous page may be on either side of it.
        bounds = "+inf" if before is None else before[0], "-inf", "LIMIT", 0, limit + 100
        names: list[str] = []
        for index, members in zip(
            indexes, await read_each(self._client, indexes, "ZREVRANGEBYSCORE", *bounds), strict=True
        ):
            if isinstance(members, Unreadable):
                self._unreadable.note(members)
            else:
                names += self._scripted.named_by(index, members, str)
        jobs: list[BulkJob] = []
        for job in await self._read(names):
            if isinstance(job, Unreadable):
                self._unreadable.note(job)
            elif job is not None and (before is None or (job.created_ms, job.job_id) < before):
                jobs.append(job)
        return sorted(jobs, key=lambda job: (job.created_ms, job.job_id), reverse=True)[:limit]

    async def _read(self, job_ids: Sequence[str]) -> list[BulkJob | Unreadable | None]:
        keys = list(map(self._keys.job, job_ids))
        texts = await read_each(self._client, keys, "HGET", "job")
        return [_job(key, text) for key, text in zip(keys, texts, strict=True)]


def _job(key: str, text: Any) -> BulkJob | Unreadable | None:
    try:
        with reading(key, text):
            return None if text is None else _decode(text)
    except Unreadable as error:
        return error
