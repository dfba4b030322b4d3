"""Open runs and the outbox in Redis: sorted sets by the time of the next check."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.due_sets import DueCheck
from tradewind.scheduler.stores.redis.ranks import STOPPING
from tradewind.scheduler.stores.redis.scripts import Scripted, named_first, script
from tradewind.server.partitions import partition_of
from tradewind.server.redis.records import read_of

Member = TypeVar("Member")

_FORGET = script("forget_run", bool)
_SETTLE = script("settle_outbox", bool)


class _DueSet:
    """Plain commands on one sorted set per partition."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys

    async def _check(
        self,
        partitions: Collection[int],
        key_of: Callable[[int], str],
        limit: int,
        parse: Callable[[str, int], tuple[Member, int]],
    ) -> dict[int, DueCheck[Member]]:
        """Return what is due in each partition; `parse` returns a member and the time of its next check."""
        found = await self._scripted.first_of(list(map(key_of, partitions)), limit + 1, parse)
        now = self._scripted.now_ms()
        return {each: _due_of(members, now, limit) for each, members in zip(partitions, found, strict=True)}


class RedisOpenRuns(_DueSet):
    """Implements OpenRuns."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[RunName]]:
        return await self._check(partitions, self._keys.open, limit, lambda name, at_ms: (RunName.parse(name), at_ms))

    async def postpone(self, runs: Mapping[RunName, int]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        now = self._scripted.now_ms()
        for run, delay_ms in runs.items():
            pipeline.execute_command("ZADD", self._open(run), "XX", now + delay_ms, str(run))
        await pipeline.execute()

    async def of_flow(self, flow_id: str, limit: int) -> list[RunName]:
        cycles = self._keys.cycles(flow_id)

        async def read(at: int) -> list[bytes]:
            names = await self._client.execute_command("ZRANGEBYSCORE", cycles, STOPPING, "+inf", "LIMIT", at, limit)
            return list(names)

        with read_of(cycles):
            return await named_first(await read(0), limit, partial(self._scripted.runs_of, flow_id), read)

    async def forget(self, run: RunName) -> None:
        await self._scripted.call_for_partition(_FORGET, partition_of(run.flow_id), **run._asdict())

    def _open(self, run: RunName) -> str:
        return self._keys.open(partition_of(run.flow_id))


class RedisOutbox(_DueSet):
    """Implements Outbox."""

    async def check(self, partitions: Collection[int], limit: int) -> dict[int, DueCheck[str]]:
        return await self._check(partitions, self._keys.outbox, limit, lambda flow_id, at_ms: (flow_id, at_ms))

    async def settle(self, flow_id: str, schedule_epoch: int) -> bool:
        return await self._scripted.call_for_flow(_SETTLE, flow_id, schedule_epoch=schedule_epoch)

    async def add(self, flow_id: str) -> None:
        outbox = self._keys.outbox(partition_of(flow_id))
        await self._client.execute_command("ZADD", outbox, self._scripted.now_ms(), flow_id)

    async def postpone(self, flow_id: str, delay_ms: int) -> None:
        outbox = self._keys.outbox(partition_of(flow_id))
        await self._client.execute_command("ZADD", outbox, "XX", self._scripted.now_ms() + delay_ms, flow_id)


def _due_of(members: list[tuple[Member, int]], now_ms: int, limit: int) -> DueCheck[Member]:
    due = tuple(member for member, at_ms in members[:limit] if at_ms <= now_ms)
    later = members[len(due) :]
    return DueCheck(due, later[0][1] if later else None)
