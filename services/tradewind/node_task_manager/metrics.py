"""The metrics of the node task manager."""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind
from tradewind.server.metrics import FAST, REGISTRY, SLOW, SWITCH, BoundedNames, counter_by

READY_TO_START_SECONDS = Histogram(
    "tradewind_ready_to_start_seconds",
    "Time from when a node task became ready until it was given to a worker.",
    buckets=(*FAST, 10.0, 60.0, 300.0),
    registry=REGISTRY,
)
NODE_SECONDS = Histogram(
    "tradewind_node_seconds", "Time spent in nodes, as reported by workers.", buckets=SLOW, registry=REGISTRY
)
ENDED = counter_by(
    "outcome",
    [kind.value for kind in OutcomeKind if kind is not OutcomeKind.BEGUN],
    "tradewind_node_attempts_ended_total",
    "Ended attempts of node tasks, by outcome.",
)
LEASES_LOST = Counter(
    "tradewind_leases_lost_total", "Reports and renewals refused because the lease was lost.", registry=REGISTRY
)
REAPED = Counter(
    "tradewind_leases_reaped_total",
    "Leases taken back because their worker was lost or did not renew them.",
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge(
    "tradewind_queue_depth",
    "Node tasks that are ready and wait for a worker or for a limit, by node type.",
    ["node_type"],
    registry=REGISTRY,
)
QUEUE_OLDEST_SECONDS = Gauge(
    "tradewind_queue_oldest_seconds",
    "How long the next node task in line for a worker has waited, the longest over all users, by node type.",
    ["node_type"],
    registry=REGISTRY,
)
SLOTS_HELD = Gauge("tradewind_slots_held", "Node tasks that hold a lease, and so a slot.", registry=REGISTRY)
WORKERS_CONNECTED = Gauge(
    "tradewind_workers_connected", "Workers connected to, or called by, this replica.", registry=REGISTRY
)
CACHE_COUNTS = ("hits", "misses", "waits", "fills", "oversize", "evicted", "bypassed")
CACHE_EVENTS = counter_by(
    "event",
    CACHE_COUNTS,
    "tradewind_cache_events_total",
    "Outcomes of look-ups in result caches and of storing results, over all caches.",
)

node_type_label = BoundedNames()


def count_assigned(assignments: Iterable[Assignment]) -> None:
    """Observe how long node tasks waited that were just given to workers."""
    if SWITCH.on:
        for each in assignments:
            READY_TO_START_SECONDS.observe(each.waited_ms / 1000)


def count_ended(outcomes: Iterable[Outcome], refusals: Iterable[str]) -> None:
    """Count ended attempts, and outcomes that were refused (those with a reason)."""
    if SWITCH.on:
        for outcome, refused in zip(outcomes, refusals, strict=True):
            if refused:
                LEASES_LOST.inc()
            elif outcome.kind is not OutcomeKind.BEGUN:
                ENDED.labels(outcome.kind.value).inc()
