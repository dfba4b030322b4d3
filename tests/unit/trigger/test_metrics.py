"""Metrics of the trigger service."""

from tradewind.server.metrics import REGISTRY, SWITCH
from tradewind.trigger.domain.claim import DueTrigger
from tradewind.trigger.domain.schedule import Once, Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.metrics import count_delivered


def late_s() -> float:
    """Return the sum of the lateness of all triggers so far."""
    return REGISTRY.get_sample_value("tradewind_trigger_lateness_seconds_sum") or 0.0


def test_jitter_does_not_count_as_lateness() -> None:
    schedule = Schedule(Once(1_000_000), jitter_ms=60_000)
    wanted_ms = schedule.delivery_ms("t", 1_000_000)
    assert wanted_ms > 1_000_000
    trigger = Trigger("t", "flow", schedule, "", 0, TriggerStatus.CLAIMED, 1_000_000, 0, "", 1, 0)
    SWITCH.turn(1)
    before_s = late_s()
    try:
        count_delivered([DueTrigger(trigger, "3:t:1:n", 0, wanted_ms + 500)])
    finally:
        SWITCH.turn(-1)
    assert late_s() - before_s == 0.5
