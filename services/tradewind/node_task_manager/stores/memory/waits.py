"""What waits in a shard in memory, and behind what: queues, limits, and the node tasks that hold slots of these."""

from collections import Counter
from collections.abc import Sequence

from tradewind.node_task_manager.ports.reading import Holders, Place, Queue
from tradewind.node_task_manager.stores.memory.limiting import MemoryLimiting


class MemoryWaits(MemoryLimiting):
    """A QueueReader but for the counts of what is gone."""

    async def queues(self) -> list[Queue]:
        held_back = self._slots.held_back()
        queued = {
            (node_type, user): (count, self._tasks[first].ready_at)
            for node_type, user, count, first in self._queues.heads()
        }
        names = sorted(queued.keys() | held_back.keys())
        return [Queue(*name, *queued.get(name, (0, 0)), held_back[name]) for name in names]

    async def running(self, limit: int) -> tuple[int, Counter[tuple[str, str]]]:
        some = [self._tasks[task_id] for task_id in sorted(self._leases)[:limit]]
        return len(self._leases), Counter((self._node(task).node_type, self._user(task)) for task in some)

    async def held(self, limits: Sequence[str]) -> list[int]:
        return [self._held(limit) for limit in limits]

    def _held(self, limit: str) -> int:
        kind, _, rest = limit.partition(":")
        if kind in ("rate", "pace"):
            return self._bucket(rest) - self._clock() * 1000
        return len(self._leases) if limit == "running" else self._slots.held(limit)

    async def holders(self, limit: str, most: int) -> Holders:
        if limit == "running":
            ids = sorted(self._leases, key=lambda task_id: (self._leases[task_id], task_id))
        else:
            ids = sorted(self._slots.holders(limit), key=lambda task_id: (self._tasks[task_id].started_at, task_id))
        return Holders(len(ids), tuple(ids[:most]))

    async def place(self, node_type: str, user_id: str, task_id: str) -> Place:
        return Place(*self._queues.place(node_type, user_id, task_id))
