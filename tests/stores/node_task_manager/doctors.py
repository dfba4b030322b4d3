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
    examiner = ShardExaminer(shard)

    async def examiners(everything: bool) -> list[ShardExaminer]:
        return [examiner]

    doctor = Doctor(examiners, recheck_s=0)
    return [finding async for step in doctor.run(mend=mend) for finding in step.findings]
