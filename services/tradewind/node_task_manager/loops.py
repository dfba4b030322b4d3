"""The node task manager's own loops: reaping, pinging, polling."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.clean import Cleaner
from tradewind.node_task_manager.use_cases.connected_worker import UNANSWERED_PINGS
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.reaper import Reaper
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.beats import beat
from tradewind.server.clock import Clock
from tradewind.server.incidents import IncidentLog
from tradewind.server.side_tasks import SideTasks
from tradewind.server.stalls import StallDetector

Step = Callable[[], Awaitable[bool | None]]
"""A step to repeat; it returns True when there was nothing to do and may be nothing for a while."""

_log = structlog.get_logger(__name__)
_REAP_S = 1.0
_QUIET_S = 2.5
_MAINTAIN_S = 1.0
_LEAVE_S = 1.0
_PING_S = 5.0


class Loops:
    """Runs the loops of one process."""

    def __init__(
        self,
        dispatchers: Mapping[int, Dispatcher],
        pool: WorkerPool,
        lease_s: float,
        load_config: Callable[[], Awaitable[None]],
        caches: ResultCaches,
        cleaners: Sequence[Cleaner],
        clock: Clock,
        poll_s: float,
    ) -> None:
        self._dispatchers = dispatchers
        self._pool = pool
        self._load_config = load_config
        self._cleaners = cleaners
        self._poll_s = poll_s
        self._caches = caches
        self._clock = clock
        self.stalls = StallDetector()
        self._lease_s = lease_s
        # Leases that begin while the reapers rest must not lapse before they look again.
        self._quiet_s = max(_REAP_S, min(_QUIET_S, lease_s / 2))
        # A worker that hangs must stop getting work before the node tasks that it held are given out again.
        self._ping_s = min(_PING_S, lease_s / (UNANSWERED_PINGS + 3))
        self._pings = 0
        self._failing = IncidentLog(_log, "step_failed", "step_recovered")
        self._tasks = SideTasks()
        self._repeated: list[tuple[Step, float, float]] = []
        self._alongside: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def repeat(self, step: Step, every_s: float, quiet_s: float = 0.0) -> None:
        """Call `step` every `every_s` seconds once started, or every `quiet_s` while there is nothing to do."""
        self._repeated.append((step, every_s, quiet_s))

    def run_alongside(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `run` alongside the loops once started."""
        self._alongside.append(run)

    def start(self) -> None:
        """Start all loops."""
        for run in self._alongside:
            self._tasks.begin(run())
        self._tasks.begin(self.stalls.run())
        for dispatcher in self._dispatchers.values():
            reaper = Reaper(dispatcher, self._pool, self.stalls, self._clock, self._lease_s)
            self._tasks.begin(self._every(reaper, _REAP_S, self._quiet_s))
        for cleaner in self._cleaners:
            self._tasks.begin(self._every(cleaner, cleaner.every_s))
        self._tasks.begin(self._every(self._request_claims, self._poll_s))
        self._tasks.begin(self._every(self._load_config, self._poll_s))
        self._tasks.begin(self._every(self._caches.maintain, _MAINTAIN_S, self._quiet_s))
        self._tasks.begin(self._every(self._ping, self._ping_s))
        for step, every_s, quiet_s in self._repeated:
            self._tasks.begin(self._every(step, every_s, quiet_s))

    async def stop(self) -> None:
        """Stop all loops, and let another replica clean."""
        await self._tasks.end()
        await asyncio.gather(*map(_leave, self._cleaners))

    async def _request_claims(self) -> None:
        """Look for work, in case a wake-up was lost."""
        for dispatcher in self._dispatchers.values():
            dispatcher.request_claim()

    async def _ping(self) -> None:
        """Ping all workers; one that leaves pings unanswered gets nothing new."""
        self._pings += 1
        for worker in self._pool:
            worker.unanswered_pings += 1
            self._pool.refresh(worker)
            if worker.unanswered_pings == UNANSWERED_PINGS + 1:
                self._pool.changed(worker)
            worker.line.ping(self._pings)

    async def _every(self, step: Step, every_s: float, quiet_s: float = 0.0) -> None:
        quiet = False
        while True:
            await beat(quiet_s if quiet and quiet_s else every_s)
            try:
                quiet = bool(await step())
            except Exception as error:
                quiet = False
                name = getattr(step, "__qualname__", type(step).__name__)
                self._failing.note(name, error=error)


async def _leave(cleaner: Cleaner) -> None:
    try:
        async with asyncio.timeout(_LEAVE_S):
            await cleaner.leave()
    except Exception as error:
        # The lease lapses by itself.
        _log.info("cleaning_lease_not_released", error=error)
