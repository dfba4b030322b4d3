"""Ownership of partitions in Redis."""

from collections.abc import Mapping, Sequence

from tradewind.scheduler.stores.redis.scripts import Scripted, script

_OWN = script("own_partition", int)
_RELEASE = script("release_partition", bool)
_MEET = script("meet_replicas", list[str])


class RedisPartitions:
    """Implements Partitions. `lease_ms` is how long a lease lasts without renewal, by the store's own clock."""

    def __init__(self, scripted: Scripted, replica: str, lease_ms: int) -> None:
        self._scripted = scripted
        self._client = scripted.client
        self._keys = scripted.keys
        self._replica = replica
        self._lease_ms = lease_ms

    async def take(self, partition: int, *, force: bool = False) -> int:
        args = self._scripted.args(partition, replica=self._replica, lease=self._lease_ms, force=force)
        return await _OWN(self._client, self._named(partition), args)

    async def renew(self, held: Mapping[int, int]) -> set[int]:
        # One plain command each, so that an idle owner costs next to nothing. Renewing somebody else's lease by mistake
        # merely lets him keep it a little longer; the answer tells, and the partition counts as lost.
        pipeline = self._client.pipeline(transaction=False)
        for partition in held:
            pipeline.execute_command("GETEX", self._keys.lease(partition), "PX", self._lease_ms)
        replies = await pipeline.execute()
        return {
            partition
            for (partition, epoch), reply in zip(held.items(), replies, strict=True)
            if reply is None or int(reply) != epoch
        }

    async def release(self, held: Mapping[int, int]) -> None:
        calls = [(self._named(partition), self._scripted.args(partition, epoch)) for partition, epoch in held.items()]
        if calls:
            await _RELEASE.many(self._client, calls)

    async def meet(self) -> Sequence[str]:
        return await self._meet(self._lease_ms)

    async def leave(self) -> None:
        await self._meet(0)

    async def _meet(self, keep_ms: int) -> Sequence[str]:
        args = self._scripted.args(0, replica=self._replica, keep=keep_ms)
        return await _MEET(self._client, [self._keys.replicas()], args)

    def _named(self, partition: int) -> tuple[str, str]:
        return self._keys.owner(partition), self._keys.lease(partition)
