"""Measuring queues and leases for their metrics."""

from collections.abc import Mapping

from tradewind.node_task_manager.metrics import (
    QUEUE_DEPTH,
    QUEUE_OLDEST_SECONDS,
    SLOTS_HELD,
    WORKERS_CONNECTED,
    node_type_label,
)
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.clock import Clock


class MeasureQueues:
    """Sets the gauges to the present values over all shards."""

    def __init__(self, shards: Mapping[int, Shard], pool: WorkerPool, clock: Clock) -> None:
        self._shards = shards
        self._pool = pool
        self._clock = clock
        self._reported: set[str] = set()

    async def __call__(self) -> None:
        """Measure once; queues that were reported before and are empty now become 0."""
        depths, oldest = dict.fromkeys(self._reported, 0), dict.fromkeys(self._reported, 0.0)
        held, now_ms = 0, self._clock.now_ms()
        for shard in self._shards.values():
            (count,) = await shard.queues.held(["running"])
            held += count
            for queue in await shard.queues.queues():
                label = node_type_label(queue.node_type)
                depths[label] = depths.get(label, 0) + queue.count + queue.held_back
                if queue.first_ready_at:
                    oldest[label] = max(oldest.get(label, 0.0), (now_ms - queue.first_ready_at) / 1000)
        for label, depth in depths.items():
            QUEUE_DEPTH.labels(label).set(depth)
            QUEUE_OLDEST_SECONDS.labels(label).set(oldest.get(label, 0.0))
        self._reported = set(depths)
        SLOTS_HELD.set(held)
        WORKERS_CONNECTED.set(len(self._pool))
