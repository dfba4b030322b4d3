"""How much work there is for a pool of workers; autoscalers ask for this."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass

from tradewind.node_task_manager.use_cases.queue_statistics import QueueStatistics

FRESH_S = 1.0
"""The store is read no more often than this, however many ask and however often."""

POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Pool:
    """What counts for a pool: node tasks of these types (all types if none are named) and this user (all for "")."""

    node_types: Collection[str] = ()
    user_id: str = ""
    count_running: bool = True


class Demand:
    """Counts queued and running node tasks; the counts of one look serve all who ask within a second."""

    def __init__(
        self, count: Callable[[], Awaitable[QueueStatistics]], poll_s: float = POLL_S, fresh_s: float = FRESH_S
    ) -> None:
        self._count = count
        self._poll_s = poll_s
        self._fresh_s = fresh_s
        self._lock = asyncio.Lock()
        self._found: tuple[float, QueueStatistics] | None = None

    async def of(self, pool: Pool) -> int:
        """Return how many node tasks there are for a pool."""
        found = await self._fresh()
        return sum(
            each.queued + (each.running if pool.count_running else 0)
            for each in found.queues
            if (not pool.node_types or each.node_type in pool.node_types) and pool.user_id in ("", each.user_id)
        )

    async def follow(self, pool: Pool) -> AsyncGenerator[bool, None]:
        """Yield whether there is any work, at once and whenever that changes; never ends."""
        last: bool | None = None
        while True:
            active = await self.of(pool) > 0
            if active is not last:
                last = active
                yield active
            await asyncio.sleep(self._poll_s)

    async def _fresh(self) -> QueueStatistics:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._found is None or now - self._found[0] >= self._fresh_s:
                self._found = now, await self._count()
            return self._found[1]
