"""What the store in memory holds for a queue, or for the flows in a partition."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tradewind.trigger.domain.claim import Firing, Subscription
from tradewind.trigger.domain.event import trigger_of
from tradewind.trigger.domain.policy import BATCH_BYTES
from tradewind.trigger.domain.trigger import TRANSITIONS, Trigger, TriggerStatus
from tradewind.trigger.ports.claims import Heads
from tradewind.trigger.ports.triggers import Page, Position
from tradewind.trigger.stores.schedule_codec import encode


@dataclass(frozen=True, slots=True)
class Entry:
    """A trigger or a firing, with what only the store knows about it.

    `place_ms` is when the trigger is to be delivered (scheduled), when its lease lapses (claimed) or when it ended.
    """

    trigger: Trigger
    place_ms: int
    attempt: int = 0
    token: str = ""
    born_ms: int = 0
    """For a firing: when its trigger was created."""

    def to(self, status: TriggerStatus, place_ms: int, token: str = "", **changes: object) -> "Entry":
        before = self.trigger.status
        if status is not before and status not in TRANSITIONS[before]:
            raise AssertionError(f"a trigger cannot become {status.value} when it is {before.value}")
        trigger = replace(self.trigger, status=status, **changes)  # type: ignore[arg-type]
        return replace(self, trigger=trigger, place_ms=place_ms, token=token)


@dataclass(slots=True)
class Lane:
    """The triggers of a queue, or those of the flows in a partition."""

    entries: dict[str, Entry] = field(default_factory=dict)
    tombstones: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Epoch and end of each tombstone, by trigger id."""
    receiver: Subscription | None = None
    firings: list[Firing] = field(default_factory=list)
    """Newest first."""
    lines: int = 0
    """How many lines were ever added to the fire history."""

    def index(self, status: TriggerStatus) -> list[Entry]:
        found = [entry for entry in self.entries.values() if entry.trigger.status is status]
        return sorted(found, key=lambda entry: (entry.place_ms, entry.trigger.id))

    def parent(self, entry: Entry) -> Entry | None:
        """Return the trigger that a firing belongs to, None when it is gone or its id now names another trigger."""
        parent = self.entries.get(trigger_of(entry.trigger.id))
        return parent if parent and parent.trigger.created_at_ms == entry.born_ms else None

    def change(self, entry: Entry, **changes: object) -> None:
        """Change fields of a trigger that keeps its status and place."""
        trigger = replace(entry.trigger, **changes)  # type: ignore[arg-type]
        self.entries[trigger.id] = replace(entry, trigger=trigger)

    def queue_up(self, entry: Entry, place_ms: int | None = None) -> None:
        """Schedule a trigger at `place_ms`, or at its delivery time when that is None, unless it is paused."""
        trigger = entry.trigger
        status = TriggerStatus.PAUSED if trigger.paused else TriggerStatus.SCHEDULED
        place_ms = trigger.delivery_ms if place_ms is None else place_ms
        self.entries[trigger.id] = replace(entry, trigger=replace(trigger, status=status), place_ms=place_ms, token="")

    def uncount_pending(self, entry: Entry) -> None:
        """Take an ended firing off its trigger's count of pending firings."""
        parent = self.parent(entry)
        if parent and parent.trigger.pending:
            self.change(parent, pending=parent.trigger.pending - 1)

    def heads(self) -> Heads:
        due, claimed = self.index(TriggerStatus.SCHEDULED), self.index(TriggerStatus.CLAIMED)
        return Heads(due[0].place_ms if due else None, claimed[0].place_ms if claimed else None)


def page_of(entries: Iterable[Entry], after: Position | None, limit: int) -> Page:
    """Return a page of sorted entries, by place and id."""
    rest = [entry for entry in entries if after is None or (entry.place_ms, entry.trigger.id) > (after.score, after.id)]
    taken: list[Entry] = []
    size = 0
    for entry in rest[:limit]:
        if size >= BATCH_BYTES:
            break
        taken.append(entry)
        size += size_of(entry.trigger)
    end = Position(taken[-1].place_ms, taken[-1].trigger.id) if taken else None
    return Page(tuple(entry.trigger for entry in taken), size, end, more=len(taken) < len(rest))


def size_of(trigger: Trigger) -> int:
    """Return the approximate size of a trigger in bytes."""
    _, _, spec = encode(trigger.schedule)
    return sum(len(text.encode()) for text in (trigger.payload_json, spec, trigger.last_error, trigger.pause_note))
