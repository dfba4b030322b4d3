"""Ends of runs that wait to be delivered, in Redis."""

from collections.abc import Callable, Collection, Sequence

from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.server.partitions import partition_of


class RedisEnds:
    """Implements Ends; `key_of` returns the key of a partition's set."""

    def __init__(self, scripted: Scripted, key_of: Callable[[int], str]) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._key_of = key_of

    async def waiting(self, partitions: Collection[int], limit: int) -> list[EndedRun]:
        found = await self._scripted.first_of([self._key_of(each) for each in partitions], limit, _ended_run)
        return [end for ends in found for end in ends]

    async def remove(self, ends: Sequence[EndedRun]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for end in ends:
            key = self._key_of(partition_of(end.run.flow_id))
            pipeline.execute_command("ZREM", key, f"{end.run} {end.run_id} {end.status.value}")
        await pipeline.execute()


def _ended_run(member: str, end_ms: int) -> EndedRun:
    run, run_id, status = member.split(" ")
    return EndedRun(RunName.parse(run), run_id, CycleStatus(status), end_ms)
