"""The scheduler's stores in Redis."""

from collections.abc import Callable

from tradewind.scheduler.domain.revision import KEPT_REVISIONS
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.stores.redis.backfills import RedisBackfills
from tradewind.scheduler.stores.redis.bulk_jobs import RedisBulkJobs
from tradewind.scheduler.stores.redis.changes import RedisChanges
from tradewind.scheduler.stores.redis.cycles import RedisCycles
from tradewind.scheduler.stores.redis.doctor import RedisPartitionDoctor
from tradewind.scheduler.stores.redis.due_sets import RedisOpenRuns, RedisOutbox
from tradewind.scheduler.stores.redis.ends import RedisEnds
from tradewind.scheduler.stores.redis.firings import RedisFirings
from tradewind.scheduler.stores.redis.flows import RedisFlows
from tradewind.scheduler.stores.redis.logs import RedisLogs
from tradewind.scheduler.stores.redis.memories import RedisFlowMemories
from tradewind.scheduler.stores.redis.partitions import RedisPartitions
from tradewind.scheduler.stores.redis.revisions import RedisRevisions
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.scheduler.stores.redis.states import RedisStates
from tradewind.scheduler.stores.redis.wakes import RedisWakeChannel
from tradewind.server.clock import Clock
from tradewind.server.redis.client import Client
from tradewind.server.redis.subscriber import Subscriber

__all__ = ["RedisStores"]


class RedisStores:
    """All stores of the scheduler over one client; `clock` gives the `now_ms` of scripts, 0 for the store's time."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        clock: Callable[[], int],
        subscriber: Subscriber,
        *,
        replica: str,
        lease_ms: int = 10_000,
        publishes_ends: Callable[[], bool] = lambda: False,
        kept_revisions: int = KEPT_REVISIONS,
        settle_ms: int = 0,
        store_clock: Clock | None = None,
    ) -> None:
        scripted = Scripted(client, keys, clock, store_clock)
        self.flows = RedisFlows(scripted, kept_revisions)
        self.revisions = RedisRevisions(scripted)
        self.states = RedisStates(scripted, publishes_ends, settle_ms)
        self.cycles = RedisCycles(scripted, self.states, settle_ms)
        self.open_runs = RedisOpenRuns(scripted)
        self.outbox = RedisOutbox(scripted)
        self.firings = RedisFirings(scripted)
        self.logs = RedisLogs(scripted)
        self.ends = RedisEnds(scripted, keys.ends)
        self.returns = RedisEnds(scripted, keys.returns)
        self.backfills = RedisBackfills(scripted)
        self.doctor = RedisPartitionDoctor(scripted)
        self.memories = RedisFlowMemories(scripted)
        self.jobs = RedisBulkJobs(scripted)
        self.changes = RedisChanges(subscriber, keys)
        self.wakes = RedisWakeChannel(client, subscriber, keys)
        self.partitions = RedisPartitions(scripted, replica, lease_ms)
