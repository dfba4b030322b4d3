"""Ownership of partitions in memory."""

from collections.abc import Mapping

from tradewind.scheduler.ports.owning import NO_PRESENCE, Presence
from tradewind.scheduler.stores.memory.data import Data


class MemoryPartitions:
    """Implements Partitions."""

    def __init__(self, data: Data, replica: str, lease_ms: int) -> None:
        self._data = data
        self.replica = replica
        self.lease_ms = lease_ms

    async def report_presence(self, *, alone: bool = False) -> Presence:
        now, replicas = self._data.now(), self._data.replicas
        if alone:
            replicas.clear()
        lapsed = replicas.get(self.replica, 0) <= now
        replicas[self.replica] = now + self.lease_ms
        return Presence(now, lapsed, tuple(sorted(name for name, until in replicas.items() if until > now)))

    async def leave(self) -> None:
        self._data.replicas.pop(self.replica, None)

    async def acquire(self, partition: int, presence: Presence = NO_PRESENCE) -> int:
        now = self._data.now()
        holder, last = self._data.owners.get(partition), self._data.epochs.get(partition, 0)
        if holder not in (None, self.replica) and (last > presence.at_ms or holder in presence.replicas):
            return 0
        self._data.owners[partition] = self.replica
        self._data.epochs[partition] = max(last + 1, now)
        return self._data.epochs[partition]

    async def release(self, held: Mapping[int, int]) -> None:
        for partition, epoch in held.items():
            if self._data.epochs.get(partition) == epoch:
                self._data.owners.pop(partition, None)
