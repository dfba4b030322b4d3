"""Node tasks that this process has postponed because another one works out the same result."""

import time
from collections.abc import Awaitable, Callable, Sequence

import structlog

from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.use_cases.shard import by_shard

_log = structlog.get_logger(__name__)
_FORGET_S = 60.0
"""Postponed node tasks look again by themselves long before this."""

Waiter = tuple[int, str]
"""The shard and id of a node task."""


class CacheWaiters:
    """Which node tasks wait for which results; `hasten(shard, task_ids)` makes node tasks ready and returns "" for each
    that is ready then."""

    def __init__(self, hasten: Callable[[int, Sequence[str]], Awaitable[Sequence[str]]]) -> None:
        self._hasten = hasten
        self._waiting: dict[Entry, dict[Waiter, float]] = {}
        self._entries: dict[Waiter, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, shard: int, task_id: str) -> None:
        """Note that a node task is about to be postponed."""
        self._waiting.setdefault(entry, {})[shard, task_id] = time.monotonic()
        self._entries[shard, task_id] = entry

    def forget(self, shard: int, task_id: str) -> None:
        """Note that a node task waits no more."""
        entry = self._entries.pop((shard, task_id), None)
        if entry is not None:
            waiting = self._waiting[entry]
            del waiting[shard, task_id]
            if not waiting:
                del self._waiting[entry]

    async def postponed(self, shard: int, task_ids: Sequence[str]) -> None:
        """Note that node tasks have been postponed; those whose news came before that are made ready at once."""
        await self._make_ready([(shard, task_id) for task_id in task_ids if (shard, task_id) not in self._entries])

    async def notify(self, entry: Entry, *, filled: bool) -> None:
        """If a result is there (`filled`), make all node tasks that wait for it ready; else one, to work it out."""
        waiting = list(self._waiting.get(entry, ()))
        for chosen in [waiting] if filled else [[each] for each in waiting]:
            for waiter in chosen:
                self.forget(*waiter)
            if await self._make_ready(chosen):
                return

    def expire(self) -> None:
        """Forget node tasks that have checked again elsewhere, or have ended."""
        now = time.monotonic()
        for waiting in list(self._waiting.values()):
            for waiter, since in list(waiting.items()):
                if now - since > _FORGET_S:
                    self.forget(*waiter)

    async def _make_ready(self, waiters: Sequence[Waiter]) -> bool:
        """Return whether any of them is ready now."""
        ready = False
        for shard, task_ids in by_shard(waiters).items():
            try:
                ready = not all(await self._hasten(shard, task_ids)) or ready
            except Exception as error:
                # They look again by themselves.
                _log.warning("waiters_not_notified", count=len(task_ids), error=error)
        return ready
