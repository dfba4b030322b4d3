"""Takes back node tasks whose leases have lapsed."""

import time
from collections.abc import Sequence

import structlog

from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.clock import Clock
from tradewind.server.stalls import StallDetector

_log = structlog.get_logger(__name__)
_OUTAGE_S = 2.0
"""A store that is away or hangs for longer may have kept workers from renewing their leases."""


class Reaper:
    """Takes back lapsed leases; after a start, an outage or a break, all are spared for one whole lease.

    It is quiet while no worker here holds anything and nothing has lapsed.
    """

    def __init__(
        self, dispatcher: Dispatcher, pool: WorkerPool, stalls: StallDetector, clock: Clock, lease_s: float
    ) -> None:
        self._dispatcher = dispatcher
        self._pool = pool
        self._stalls = stalls
        self._clock = clock
        self._lease_s = lease_s
        self._recovered_at = 0.0
        """When the store came back."""
        self._unavailable_since = 0.0

    async def __call__(self) -> bool:
        quiet = True
        while reaped := await self._step():
            quiet = False
            _log.info("reaped", shard=self._dispatcher.shard.number, node_tasks=reaped[:10])
            self._dispatcher.request_claim()
        return quiet and not any(worker.held for worker in self._pool)

    async def _step(self) -> Sequence[str]:
        """Return the node tasks taken back by one script; there may be more."""
        tasks, now = self._dispatcher.shard.tasks, time.monotonic()
        if self._unavailable_since and now - self._unavailable_since > _OUTAGE_S:
            # Set before asking the store: this may be the first look that it answers.
            self._recovered_at = now
        spare_s = max(self._recovered_at, self._stalls.running_since_s()) + self._lease_s - now
        # A store that hangs carries this out when it wakes, before it sees the leases renewed in the meantime.
        by_ms = self._clock.now_ms() + round(_OUTAGE_S * 1000)
        try:
            effects = await tasks.reap(spare_ms=max(0, round(spare_s * 1000)), by_ms=by_ms)
        except Exception:
            self._unavailable_since = self._unavailable_since or now
            raise
        if effects.late:
            self._recovered_at = time.monotonic()
        if self._unavailable_since:
            self._unavailable_since = 0.0
            self._dispatcher.recovered()
        self._dispatcher.apply(effects)
        return effects.results
