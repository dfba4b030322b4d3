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
        present = self._present()
        if not changes.whole and replica not in present:
            return False
        report = _Replica() if changes.whole else present[replica]
        report.until_ms = self._clock() + keep_ms
        report.workers.update(changes.workers)
        report.workers = {worker_id: since for worker_id, since in report.workers.items() if since}
        report.node_types |= {name for name, last in changes.node_types.items() if last is None}
        report.node_types -= {name for name, last in changes.node_types.items() if last is not None}
        self._replicas = (
            {**present, replica: report} if keep_ms else {name: present[name] for name in present if name != replica}
        )
        for name, last in changes.node_types.items():
            if last is None:
                self._last.pop(name, None)
            elif not self._offered(name):
                self._last[name] = last
        return True

    async def unoffered(self, node_types: Sequence[str]) -> Mapping[str, LastOffer]:
        return {name: self._last.get(name, LastOffer()) for name in node_types if not self._offered(name)}

    async def since(self, worker_ids: Sequence[str]) -> Mapping[str, int]:
        reports = [replica.workers for replica in self._present().values()]
        found = {name: max(workers.get(name, 0) for workers in reports) for name in worker_ids if reports}
        return {name: since for name, since in found.items() if since}

    def _present(self) -> dict[str, _Replica]:
        return {name: replica for name, replica in self._replicas.items() if replica.until_ms > self._clock()}

    def _offered(self, node_type: str) -> bool:
        return any(node_type in replica.node_types for replica in self._present().values())
