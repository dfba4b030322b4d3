"""Ownership of partitions in Redis."""

from collections.abc import Mapping

from tradewind.scheduler.ports.owning import NOBODY_MET, Meeting
from tradewind.scheduler.stores.redis.scripts import Scripted, script

_OWN = script("own_partition", int)
_RELEASE = script("release_partition", bool)
_MEET = script("meet_replicas", tuple[int, bool, tuple[str, ...]])


class RedisPartitions:
    """Implements Partitions. `lease_ms` is how long a replica counts as present, by the store's own clock."""

    def __init__(self, scripted: Scripted, replica: str, lease_ms: int) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys
        self.replica = replica
        self._lease_ms = lease_ms

    async def meet(self, *, alone: bool = False) -> Meeting:
        return await self._meet(self._lease_ms, alone)

    async def leave(self) -> None:
        await self._meet(0, False)

    async def take(self, partition: int, met: Meeting = NOBODY_MET) -> int:
        args = self._scripted.args(partition, replica=self.replica, here=met.here, at=met.at_ms)
        return await _OWN(self._client, [self._keys.owner(partition)], args)

    async def release(self, held: Mapping[int, int]) -> None:
        calls = [
            ([self._keys.owner(partition)], self._scripted.args(partition, epoch)) for partition, epoch in held.items()
        ]
        if calls:
            await _RELEASE.many(self._client, calls)

    async def _meet(self, keep_ms: int, alone: bool) -> Meeting:
        args = self._scripted.args(0, replica=self.replica, keep=keep_ms, alone=alone)
        return Meeting(*await _MEET(self._client, [self._keys.replicas()], args))
