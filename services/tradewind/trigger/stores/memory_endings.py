"""How claims in memory end, other than by being given back."""

from dataclasses import replace

from tradewind.trigger.domain.claim import Firing
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.trigger import TriggerStatus
from tradewind.trigger.ports.claims import DeadLetter
from tradewind.trigger.stores.memory_lanes import Entry, Lane


def add_firing(lane: Lane, policy: Policy, entry: Entry, outcome: str, now_ms: int, error: str = "") -> None:
    """Add a line to the fire history."""
    trigger = entry.trigger
    event_id = trigger.event.id if trigger.event else ""
    lane.lines += 1
    position = f"{lane.lines:012}"
    line = Firing(trigger.id, trigger.planned_ms, entry.attempt, outcome, now_ms, error, event_id, position)
    lane.firings.insert(0, line)
    del lane.firings[policy.firings_kept :]


def end_firing(lane: Lane, policy: Policy, entry: Entry, now_ms: int) -> None:
    """End an acknowledged firing of an event; its trigger counts it, and completes with the last one."""
    trigger = entry.trigger
    lane.uncount_pending(entry)
    del lane.entries[trigger.id]
    lane.tombstones[trigger.id] = (trigger.epoch, now_ms + policy.repeat_ms)
    parent = lane.parent(entry)
    if parent is None or parent.trigger.schedule.event is None:
        return
    fired, most = parent.trigger.fired + 1, parent.trigger.schedule.max_firings
    lane.change(parent, fired=fired)
    if most and fired >= most and parent.trigger.status is not TriggerStatus.COMPLETED:
        lane.entries[parent.trigger.id] = lane.entries[parent.trigger.id].to(TriggerStatus.COMPLETED, now_ms)


def fail(
    lane: Lane, policy: Policy, entry: Entry, error: str, delay_ms: int, now_ms: int, *, postponed: bool = False
) -> DeadLetter | None:
    """End the claim of a trigger that failed or was postponed; only a failure counts, and the last one kills it."""
    trigger = entry.trigger
    failures = trigger.failures if postponed else trigger.failures + 1
    if postponed or failures < policy.max_failures:
        changed = replace(trigger, failures=failures, last_error=error)
        lane.queue_up(replace(entry, trigger=changed), now_ms + delay_ms if delay_ms > 0 else None)
        return None
    add_firing(lane, policy, entry, "dead", now_ms, error)
    if trigger.event:
        lane.uncount_pending(entry)
    lane.entries[trigger.id] = entry.to(TriggerStatus.DEAD, now_ms, failures=failures, last_error=error)
    for surplus in lane.index(TriggerStatus.DEAD)[: -policy.dead_kept]:
        del lane.entries[surplus.trigger.id]
    return DeadLetter(trigger.id, failures, error)
