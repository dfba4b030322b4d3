"""The metrics of the trigger service."""

from collections.abc import Iterable

from prometheus_client import Counter, Histogram

from tradewind.server.metrics import REGISTRY, SLOW, SWITCH
from tradewind.trigger.domain.claim import DueTrigger

DELIVERED = Counter("tradewind_triggers_delivered_total", "Due triggers handed to receivers.", registry=REGISTRY)
LATENESS_SECONDS = Histogram(
    "tradewind_trigger_lateness_seconds",
    "How long after its planned time, with its jitter, a trigger was claimed for its receiver.",
    buckets=SLOW,
    registry=REGISTRY,
)
DEAD = Counter(
    "tradewind_triggers_dead_total", "Triggers that failed too often and went to the dead letters.", registry=REGISTRY
)


def count_delivered(due: Iterable[DueTrigger]) -> None:
    """Count due triggers that go to a receiver."""
    for each in due if SWITCH.on else ():
        DELIVERED.inc()
        trigger = each.trigger
        wanted_ms = trigger.schedule.delivery_ms(trigger.id, trigger.planned_ms)
        LATENESS_SECONDS.observe(max(0, each.delivered_ms - wanted_ms) / 1000)
