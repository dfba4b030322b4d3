"""What saving a trigger in memory makes of it."""

from dataclasses import replace

from tradewind.trigger.domain.errors import StaleEpoch
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.stores.memory_lanes import Entry, Lane


def refuse_stale(lane: Lane, trigger_id: str, epoch: int) -> None:
    """Raise StaleEpoch when a trigger, or one that was removed, has a higher epoch."""
    entry = lane.entries.get(trigger_id)
    known = entry.trigger.epoch if entry else lane.tombstones.get(trigger_id, (epoch, 0))[0]
    if epoch < known:
        raise StaleEpoch(trigger_id, epoch, known)


def update(lane: Lane, entry: Entry, draft: TriggerDraft) -> None:
    """Change what does not affect when a trigger fires."""
    known = entry.trigger
    if (known.partition_key, known.payload_json) != (draft.partition_key, draft.payload_json):
        lane.change(
            entry, partition_key=draft.partition_key, payload_json=draft.payload_json, revision=known.revision + 1
        )


def from_draft(draft: TriggerDraft, known: Trigger | None, now_ms: int) -> Trigger:
    """Return a trigger with no planned time and no failures; `known` is the one that it replaces."""
    fresh = Trigger(
        draft.id,
        draft.partition_key,
        draft.schedule,
        draft.payload_json,
        draft.epoch,
        status=TriggerStatus.SCHEDULED,
        planned_ms=0,
        failures=0,
        last_error="",
        revision=1,
        created_at_ms=now_ms,
    )
    if known is None:
        return fresh
    paused = known.paused and known.epoch == draft.epoch
    return replace(
        fresh,
        revision=known.revision + 1,
        created_at_ms=known.created_at_ms,
        fired=known.fired if known.schedule == draft.schedule and known.status is not TriggerStatus.COMPLETED else 0,
        paused=paused,
        pause_note=known.pause_note if paused else "",
        pending=known.pending,
        dropped=known.dropped,
    )
