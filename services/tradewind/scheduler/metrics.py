"""The metrics of the scheduler."""

from prometheus_client import Counter, Gauge, Histogram

from tradewind.scheduler.domain.chain_state import ChainState, CycleOrigin
from tradewind.scheduler.domain.cycle_status import MOVES, CycleStatus
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.server.metrics import REGISTRY, SLOW, SWITCH, counter_by

LATENESS_SECONDS = Histogram(
    "tradewind_schedule_lateness_seconds",
    "How long after its planned time, with its jitter, a scheduled cycle began; so counts one that catches up, too.",
    buckets=SLOW,
    registry=REGISTRY,
)
RERUN = "rerun"
"""The origin of a further run of a cycle."""

CYCLES_BEGUN = counter_by("origin", [*CycleOrigin, RERUN], "tradewind_cycles_begun_total", "Runs begun, by origin.")
CYCLES_ENDED = counter_by(
    "status", MOVES[CycleStatus.RUNNING], "tradewind_cycles_ended_total", "Runs ended, by status."
)
CYCLE_SECONDS = Histogram(
    "tradewind_cycle_seconds", "Time from the beginning of a run to its end.", buckets=SLOW, registry=REGISTRY
)
CONFLICTS = Counter(
    "tradewind_chain_state_conflicts_total",
    "Writes of chain states that lost against another writer, and were repeated.",
    registry=REGISTRY,
)
PARTITIONS_OWNED = Gauge("tradewind_partitions_owned", "Partitions that this replica owns.", registry=REGISTRY)


def count_begun(state: ChainState, schedule: ScheduleDefinition) -> None:
    """Count a cycle that has begun; the delay that its jitter adds on purpose does not count as late."""
    if not SWITCH.on:
        return
    CYCLES_BEGUN.labels(state.facts.origin.value).inc()
    if state.facts.origin is CycleOrigin.SCHEDULE:
        wanted_ms = schedule.delivery_ms(state.name.flow_id, state.facts.planned_ms)
        LATENESS_SECONDS.observe(max(0, state.facts.start_ms - wanted_ms) / 1000)


def count_rerun() -> None:
    """Count a further run of a cycle that has begun."""
    CYCLES_BEGUN.labels(RERUN).inc()


def count_ended(state: ChainState, end_ms: int) -> None:
    """Count a run that has ended at `end_ms`."""
    if SWITCH.on:
        CYCLES_ENDED.labels(state.status.value).inc()
        CYCLE_SECONDS.observe(max(0, end_ms - state.facts.start_ms) / 1000)
