"""A doctor for the shard under test."""

from collections.abc import Collection

from tests.stores.node_task_manager.shards import RedisShard
from tradewind.server.doctor import Doctor, Examined, Finding

RECORDS = 5
"""So few in each step that every part of a small shard is examined in several."""


class ShardExaminer:
    """An Examiner of a shard, without a process around it."""

    def __init__(self, shard: RedisShard) -> None:
        self._doctor = shard.doctor

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        return (await self._doctor.examine(at, min(records, RECORDS), recheck, mend)).examined


async def findings(shard: RedisShard, *, mend: bool = False) -> list[Finding]:
    """Return what a doctor finds in the shard."""
    return [finding for step in await _steps(shard, mend) for finding in step.findings]


async def examined(shard: RedisShard) -> int:
    """Return how many records and index entries a doctor looks at."""
    return sum(step.records for step in await _steps(shard, mend=False))


async def _steps(shard: RedisShard, mend: bool) -> list[Examined]:
    examiner = ShardExaminer(shard)

    async def examiners(everything: bool) -> list[ShardExaminer]:
        return [examiner]

    doctor = Doctor(examiners, recheck_s=0)
    return [step async for step in doctor.run(mend=mend)]
