"""Ownership of partitions in memory."""

from collections.abc import Mapping, Sequence

from tradewind.scheduler.stores.memory.data import Data


class MemoryPartitions:
    """Implements Partitions."""

    def __init__(self, data: Data, replica: str, lease_ms: int) -> None:
        self._data = data
        self._replica = replica
        self._lease_ms = lease_ms

    async def take(self, partition: int, *, force: bool = False) -> int:
        now = self._data.now()
        if partition in self._data.leases and not force:
            return 0
        epoch = max(self._data.epochs.get(partition, 0) + 1, now)
        self._data.epochs[partition] = epoch
        self._data.leases[partition] = (now + self._lease_ms, epoch)
        return epoch

    async def renew(self, held: Mapping[int, int]) -> set[int]:
        now, lost = self._data.now(), set()
        for partition, epoch in held.items():
            _, holder = self._data.leases.get(partition, (0, 0))
            if holder:
                self._data.leases[partition] = (now + self._lease_ms, holder)
            if holder != epoch:
                lost.add(partition)
        return lost

    async def release(self, held: Mapping[int, int]) -> None:
        for partition, epoch in held.items():
            if self._data.leases.get(partition, (0, 0))[1] == epoch:
                del self._data.leases[partition]

    async def meet(self) -> Sequence[str]:
        now, replicas = self._data.now(), self._data.replicas
        replicas[self._replica] = now + self._lease_ms
        return sorted(name for name, until in replicas.items() if until > now)

    async def leave(self) -> None:
        self._data.replicas.pop(self._replica, None)
