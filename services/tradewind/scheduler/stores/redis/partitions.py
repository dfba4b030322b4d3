"""Ownership of partitions in Redis."""

from collections.abc import Mapping

from tradewind.scheduler.ports.owning import NO_PRESENCE, Presence
from tradewind.scheduler.stores.redis.scripts import Scripted, script

_ACQUIRE = script("acquire_partition", int)
_RELEASE = script("release_partition", bool)
_REPORT = script("report_presence", tuple[int, bool, tuple[str, ...]])


class RedisPartitions:
    """Implements Partitions. `lease_ms` is how long a replica counts as present, by the store's own clock."""

    def __init__(self, scripted: Scripted, replica: str, lease_ms: int) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys
        self.replica = replica
        self.lease_ms = lease_ms

    async def report_presence(self, *, alone: bool = False) -> Presence:
        return await self._report(self.lease_ms, alone)

    async def leave(self) -> None:
        await self._report(0, False)

    async def acquire(self, partition: int, presence: Presence = NO_PRESENCE) -> int:
        return await self._scripted.call_for_partition(
            _ACQUIRE, partition, replica=self.replica, here=presence.replicas, at=presence.at_ms
        )

    async def release(self, held: Mapping[int, int]) -> None:
        calls = [
            ([self._keys.owner(partition)], self._scripted.args(partition, epoch)) for partition, epoch in held.items()
        ]
        if calls:
            await _RELEASE.many(self._client, calls)

    async def _report(self, keep_ms: int, alone: bool) -> Presence:
        args = self._scripted.args(0, replica=self.replica, keep=keep_ms, alone=alone)
        return Presence(*await _REPORT(self._client, [self._keys.replicas()], args))
