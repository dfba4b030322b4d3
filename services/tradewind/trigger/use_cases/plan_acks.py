"""Adds the next planned time to an acknowledgement if the store cannot compute it."""

from dataclasses import replace

from tradewind.trigger.domain.claim import Ack
from tradewind.trigger.domain.trigger import Trigger


def with_next_time(ack: Ack, trigger: Trigger, now_ms: int) -> Ack:
    """Return the ack with the next planned time of its trigger, unless it names a valid one or needs none."""
    if ack.finished or not trigger.schedule.needs_next:
        return ack
    if ack.next_ms is not None and ack.next_ms > trigger.planned_ms:
        return ack
    return replace(ack, next_ms=trigger.schedule.next_after(trigger.planned_ms, now_ms))
