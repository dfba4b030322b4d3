"""How many node tasks wait and run, by node type and user, over all shards."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.node_task_manager.use_cases.shard import Shard

_MAX_RUNNING = 20_000
"""How many running node tasks are counted by type and user; any more count only in the total."""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How many node tasks of a type and user wait and run; `first_ready_at` in epoch ms, 0 when none waits."""

    node_type: str
    user_id: str
    queued: int
    running: int
    first_ready_at: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The counts of all queues; `totals` counts ended node tasks by status, and failures as `failed:<code>`; `cleaned`
    counts the `runs`, `node_tasks` and index `entries` that were removed."""

    queues: tuple[QueueDepth, ...]
    queued: int
    running: int
    first_ready_at: int
    totals: Mapping[str, int]
    cleaned: Mapping[str, int]


class CountQueues:
    """Computes statistics from the queues themselves, so that they cannot drift from the truth."""

    def __init__(self, shards: Mapping[int, Shard]) -> None:
        self._shards = shards

    async def __call__(self, user_id: str = "", node_type: str = "") -> QueueStatistics:
        """Count all node tasks, or only those of a user or a node type."""

        def is_wanted(name: tuple[str, str]) -> bool:
            return node_type in ("", name[0]) and user_id in ("", name[1])

        queued: Counter[tuple[str, str]] = Counter()
        running: Counter[tuple[str, str]] = Counter()
        first: dict[tuple[str, str], int] = {}
        totals: Counter[str] = Counter()
        cleaned: Counter[str] = Counter()
        uncounted = 0
        for shard in self._shards.values():
            totals.update(await shard.queues.totals())
            cleaned.update(await shard.queues.cleaned())
            count, counted = await shard.queues.running(_MAX_RUNNING)
            running.update(counted)
            uncounted += max(0, count - _MAX_RUNNING)
            found = {(each.node_type, each.user_id): each for each in await shard.queues.queues()}
            found = {name: queue for name, queue in found.items() if is_wanted(name)}
            queued.update({name: queue.count + queue.held_back for name, queue in found.items()})
            for name, queue in found.items():
                if queue.first_ready_at:
                    first[name] = min(first.get(name, queue.first_ready_at), queue.first_ready_at)
        names = sorted(filter(is_wanted, queued.keys() | running.keys()))
        depths = [QueueDepth(*name, queued[name], running[name], first.get(name, 0)) for name in names]
        return QueueStatistics(
            queues=tuple(depths),
            queued=sum(depth.queued for depth in depths),
            running=sum(depth.running for depth in depths) + (0 if user_id or node_type else uncounted),
            first_ready_at=min((depth.first_ready_at for depth in depths if depth.first_ready_at), default=0),
            totals=totals,
            cleaned=cleaned,
        )
