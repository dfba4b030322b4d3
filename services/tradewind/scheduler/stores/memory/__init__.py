"""The scheduler's stores in memory: plain versions of the Redis stores. For tests; nothing outlives the process."""

from collections.abc import Callable

from tradewind.scheduler.domain.revision import KEPT_REVISIONS
from tradewind.scheduler.stores.memory.backfills import MemoryBackfills
from tradewind.scheduler.stores.memory.bulk_jobs import MemoryBulkJobs
from tradewind.scheduler.stores.memory.changes import MemoryChanges
from tradewind.scheduler.stores.memory.cycles import MemoryCycles
from tradewind.scheduler.stores.memory.data import Data
from tradewind.scheduler.stores.memory.doctor import MemoryPartitionDoctor
from tradewind.scheduler.stores.memory.due_sets import MemoryOpenRuns, MemoryOutbox
from tradewind.scheduler.stores.memory.ends import MemoryEnds
from tradewind.scheduler.stores.memory.firings import MemoryFirings
from tradewind.scheduler.stores.memory.flows import MemoryFlows
from tradewind.scheduler.stores.memory.logs import MemoryLogs
from tradewind.scheduler.stores.memory.memories import MemoryFlowMemories
from tradewind.scheduler.stores.memory.partitions import MemoryPartitions
from tradewind.scheduler.stores.memory.revisions import MemoryRevisions
from tradewind.scheduler.stores.memory.states import MemoryStates
from tradewind.scheduler.stores.memory.wakes import MemoryWakeChannel

__all__ = ["MemoryStores"]


class MemoryStores:
    """All stores of the scheduler over the same data; share `data` to simulate several replicas."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        replica: str = "memory",
        lease_ms: int = 10_000,
        data: Data | None = None,
        kept_revisions: int = KEPT_REVISIONS,
        publishes_ends: Callable[[], bool] = lambda: False,
        settle_ms: int = 0,
    ) -> None:
        self.data = data or Data(clock)
        self.flows = MemoryFlows(self.data, kept_revisions)
        self.revisions = MemoryRevisions(self.data)
        self.cycles = MemoryCycles(self.data, settle_ms)
        self.states = MemoryStates(self.data, publishes_ends, settle_ms)
        self.open_runs = MemoryOpenRuns(self.data)
        self.outbox = MemoryOutbox(self.data)
        self.firings = MemoryFirings(self.data)
        self.logs = MemoryLogs(self.data)
        self.ends = MemoryEnds(self.data.ends)
        self.returns = MemoryEnds(self.data.returns)
        self.backfills = MemoryBackfills(self.data)
        self.memories = MemoryFlowMemories(self.data)
        self.jobs = MemoryBulkJobs(self.data)
        self.changes = MemoryChanges(self.data)
        self.wakes = MemoryWakeChannel(self.data)
        self.doctor = MemoryPartitionDoctor(self.data)
        self.partitions = MemoryPartitions(self.data, replica, lease_ms)

    def next_ms(self) -> int | None:
        """Return when, in epoch ms, a loop next has something to look after, None for never."""
        jobs = (0 for job, _ in self.data.jobs.values() if not job.ended_ms)
        return min((*self.data.open.values(), *self.data.outbox.values(), *jobs), default=None)
