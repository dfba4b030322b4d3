"""Messages between replicas. They may be lost, so each replica also polls now and then.

A message is the name of a node type that has ready node tasks, or one of

e:<partition>            the partition has new events
o:<partition>:<epoch>    the partition has a subscriber of this epoch
w:<worker>               the worker must be notified
c:<version>              this version of the configuration is in force
k:<cache>:<result>:<1>   the result is in the cache; with 0 it was given up
n:<user>                 the user has a notification
d:<key>                  a script has removed this index, which was of another type
r:<run>, f:<run>         an ad-hoc run has changed, or has ended
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import structlog

from tradewind.node_task_manager.domain.caching import Entry
from tradewind.node_task_manager.use_cases.caches import ResultCaches
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.events import EventFeed
from tradewind.node_task_manager.use_cases.system_config import FollowConfig
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)
_FIRST_SHARD = 0
"""Its listeners get the messages that concern no shard."""


class ReplicaPublisher:
    """Sends messages to the other replicas."""

    def __init__(self, publish: Callable[[int, str], Awaitable[Any]]) -> None:
        self._publish = publish
        self._sending = SideTasks()

    async def stop(self) -> None:
        """Send nothing more."""
        await self._sending.end()

    def publish_events(self, shard: int, partitions: Collection[int]) -> None:
        """Publish partitions that have new events and no subscriber here."""
        for partition in sorted(partitions):
            self._begin(shard, f"e:{partition}")

    def publish_owner(self, partition: int, epoch: int) -> None:
        """Publish that a partition has a subscriber here now."""
        self._begin(_FIRST_SHARD, f"o:{partition}:{epoch}")

    def publish_workers(self, shard: int, workers: Sequence[str]) -> None:
        """Publish workers that are not connected here and must be notified."""
        for worker_id in workers:
            self._begin(shard, f"w:{worker_id}")

    def publish_config(self, version: int) -> None:
        """Publish a new configuration."""
        self._begin(_FIRST_SHARD, f"c:{version}")

    async def publish_result(self, entry: Entry, filled: bool) -> None:
        """Publish that a result is in its cache, or was given up; return once that is sent, or has failed."""
        await self._send(_FIRST_SHARD, f"k:{entry}:{int(filled)}")

    def _begin(self, shard: int, message: str) -> None:
        self._sending.begin(self._send(shard, message))

    async def _send(self, shard: int, message: str) -> None:
        try:
            await self._publish(shard, message)
        except Exception as error:
            _log.warning("replicas_not_notified", message=message, error=error)


class ReplicaListener:
    """Passes the messages of all replicas, this one included, to whatever they concern in this process."""

    def __init__(
        self,
        dispatchers: Mapping[int, Dispatcher],
        pool: WorkerPool,
        feed: EventFeed,
        config: FollowConfig,
        caches: ResultCaches,
        notify_watchers: Callable[[str, bool], None],
        on_removed: Callable[[str], None],
    ) -> None:
        self._dispatchers = dispatchers
        self._pool = pool
        self._feed = feed
        self._config = config
        self._caches = caches
        self._notify_watchers = notify_watchers
        self._on_removed = on_removed
        self._loading = SideTasks()

    async def stop(self) -> None:
        """End loading."""
        await self._loading.end()

    def __call__(self, shard: int, message: str) -> None:
        kind, _, rest = message.partition(":")
        dispatcher = self._dispatchers[shard]
        if not rest:
            # Look even without room: a claim that ran before this became ready may have been offered all of it.
            dispatcher.request_claim()
        elif kind == "e":
            self._feed.notify(shard, [int(rest)])
        elif kind == "o":
            partition, _, epoch = rest.partition(":")
            self._feed.supersede(int(partition), int(epoch))
        elif kind == "c":
            self._loading.begin(self._load_config())
        elif kind == "k":
            cache, digest, filled = rest.split(":")
            self._caches.flights.settled_elsewhere(Entry(cache, digest), filled=filled == "1")
        elif kind in ("r", "f"):
            self._notify_watchers(rest, kind == "f")
        elif kind == "n":
            self._notify_watchers(message, False)
        elif kind == "d":
            self._on_removed(rest)
        elif kind == "w" and (worker := self._pool.get(rest)) is not None:
            dispatcher.remind(worker)

    async def _load_config(self) -> None:
        try:
            await self._config.load()
        except Exception as error:
            _log.warning("config_not_read", error=error)
