"""The metrics of the scheduler."""

from prometheus_client import Counter, Gauge, Histogram

from tradewind.scheduler.domain.chain_state import ChainState, CycleOrigin
from tradewind.server.metrics import REGISTRY, SLOW, SWITCH

LATENESS_SECONDS = Histogram(
    "tradewind_schedule_lateness_seconds",
    "How long after its planned time and its jitter a scheduled cycle began; so counts one that catches up, too.",
    buckets=SLOW,
    registry=REGISTRY,
)
CYCLES_BEGUN = Counter("tradewind_cycles_begun_total", "Runs begun, by origin.", ["origin"], registry=REGISTRY)
CYCLES_ENDED = Counter("tradewind_cycles_ended_total", "Runs ended, by status.", ["status"], registry=REGISTRY)
CYCLE_SECONDS = Histogram(
    "tradewind_cycle_seconds", "Time from the beginning of a run to its end.", buckets=SLOW, registry=REGISTRY
)
CONFLICTS = Counter(
    "tradewind_chain_state_conflicts_total",
    "Writes of chain states that lost against another writer, and were repeated.",
    registry=REGISTRY,
)
PARTITIONS_OWNED = Gauge("tradewind_partitions_owned", "Partitions that this replica owns.", registry=REGISTRY)

RERUN = "rerun"
"""The origin of a further run of a cycle."""


def count_begun(state: ChainState, jitter_ms: int) -> None:
    """Count a cycle that has begun; up to `jitter_ms` of its lateness are on purpose."""
    if not SWITCH.on:
        return
    CYCLES_BEGUN.labels(state.facts.origin.value).inc()
    if state.facts.origin is CycleOrigin.SCHEDULE:
        LATENESS_SECONDS.observe(max(0, state.facts.start_ms - state.facts.planned_ms - jitter_ms) / 1000)


def count_rerun() -> None:
    """Count a further run of a cycle that has begun."""
    CYCLES_BEGUN.labels(RERUN).inc()


def count_ended(state: ChainState, end_ms: int) -> None:
    """Count a run that has ended at `end_ms`."""
    if SWITCH.on:
        CYCLES_ENDED.labels(state.status.value).inc()
        CYCLE_SECONDS.observe(max(0, end_ms - state.facts.start_ms) / 1000)
