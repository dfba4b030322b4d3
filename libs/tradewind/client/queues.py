"""Queues: what is ready and waits for a worker, by node type and user, and the limits on how much runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tradewind.api.node_task_manager.v1 import config_pb2, queue_pb2
from tradewind.client.caches import CacheSettings, cache_settings_from
from tradewind.client.wire import moment


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How much of one node type of one user waits and runs; `first_ready_at` is None when nothing waits."""

    node_type: str
    user_id: str
    queued: int
    running: int
    first_ready_at: datetime | None


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """What waits and runs; how many node tasks of all users have ended so far, and failures by code.

    Cleaning has removed `cleaned_runs` runs of flows with `cleaned_node_tasks` node tasks, and `cleaned_entries`
    entries of indexes whose records were gone.
    """

    queues: tuple[QueueDepth, ...]
    queued: int
    running: int
    first_ready_at: datetime | None
    completed: int
    failed: int
    terminated: int
    skipped: int
    failed_by_code: Mapping[str, int]
    cleaned_runs: int
    cleaned_node_tasks: int
    cleaned_entries: int


def queue_statistics_from(message: queue_pb2.GetQueueStatsResponse) -> QueueStatistics:
    """Read statistics."""
    return QueueStatistics(
        queues=tuple(
            QueueDepth(each.node_type, each.user_id, each.queued, each.running, moment(each, "first_ready_at"))
            for each in message.queues
        ),
        queued=message.queued,
        running=message.running,
        first_ready_at=moment(message, "first_ready_at"),
        completed=message.completed,
        failed=message.failed,
        terminated=message.terminated,
        skipped=message.skipped,
        failed_by_code=dict(message.failed_by_code),
        cleaned_runs=message.cleaned_runs,
        cleaned_node_tasks=message.cleaned_node_tasks,
        cleaned_entries=message.cleaned_entries,
    )


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """The configuration of the whole system; `etag` changes with each write.

    It limits how many node tasks run at once, 0 for no limit; weighs users' turns; and limits how many of a type begin
    in a time, such as 100/m. It says whether caches are used, how long their results are valid unless a cache says so
    itself, and which caches there are.
    """

    max_running: int
    max_running_per_user: int
    max_running_per_flow: int
    max_running_per_node_type: Mapping[str, int]
    max_concurrent_tasks: int
    user_weights: Mapping[str, float]
    rates: Mapping[str, str]
    etag: str
    enable_cache: bool = True
    cache_ttl: timedelta = timedelta(hours=1)
    caches: Mapping[str, CacheSettings] = field(default_factory=dict)


def system_config_from(message: config_pb2.SystemConfig, etag: str) -> SystemConfig:
    """Read a configuration."""
    return SystemConfig(
        max_running=message.max_running,
        max_running_per_user=message.max_running_per_user,
        max_running_per_flow=message.max_running_per_flow,
        max_running_per_node_type=dict(message.max_running_per_node_type),
        max_concurrent_tasks=message.max_concurrent_tasks,
        user_weights=dict(message.user_weights),
        rates=dict(message.rates),
        etag=etag,
        enable_cache=message.enable_cache,
        cache_ttl=message.cache_ttl.ToTimedelta(),
        caches={name: cache_settings_from(each) for name, each in message.caches.items()},
    )
