"""Which workers are connected to any replica, in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tradewind.node_task_manager.ports.connected import ConnectionChanges, LastOffer


@dataclass
class _Replica:
    until_ms: int = 0
    workers: dict[str, int] = field(default_factory=dict)
    node_types: set[str] = field(default_factory=set)


class MemoryConnectedWorkers:
    """Implements ConnectedWorkers; `clock` returns epoch ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._replicas: dict[str, _Replica] = {}
        self._last: dict[str, LastOffer] = {}

    async def record(self, replica: str, keep_ms: int, changes: ConnectionChanges) -> bool:
        here = self._here()
        if not changes.whole and replica not in here:
            return False
        told = _Replica() if changes.whole else here[replica]
        told.until_ms = self._clock() + keep_ms
        told.workers.update(changes.workers)
        told.workers = {worker_id: since for worker_id, since in told.workers.items() if since}
        told.node_types |= {name for name, last in changes.node_types.items() if last is None}
        told.node_types -= {name for name, last in changes.node_types.items() if last is not None}
        self._replicas = {**here, replica: told} if keep_ms else {name: here[name] for name in here if name != replica}
        for name, last in changes.node_types.items():
            if last is None:
                self._last.pop(name, None)
            elif not self._offered(name):
                self._last[name] = last
        return True

    async def unoffered(self, node_types: Sequence[str]) -> Mapping[str, LastOffer]:
        return {name: self._last.get(name, LastOffer()) for name in node_types if not self._offered(name)}

    async def since(self, worker_ids: Sequence[str]) -> Mapping[str, int]:
        told = [replica.workers for replica in self._here().values()]
        found = {name: max(workers.get(name, 0) for workers in told) for name in worker_ids if told}
        return {name: since for name, since in found.items() if since}

    def _here(self) -> dict[str, _Replica]:
        return {name: replica for name, replica in self._replicas.items() if replica.until_ms > self._clock()}

    def _offered(self, node_type: str) -> bool:
        return any(node_type in replica.node_types for replica in self._here().values())
