"""A trigger as it is stored, and its statuses."""

from dataclasses import dataclass
from enum import Enum

from tradewind.trigger.domain.event import Event
from tradewind.trigger.domain.schedule import Schedule


class TriggerStatus(Enum):
    """The status of a trigger."""

    SCHEDULED = "scheduled"
    """Waits for its time, or for the delay after a failure."""
    CLAIMED = "claimed"
    """Leased to a receiver."""
    COMPLETED = "completed"
    """Fired for the last time; kept for its retention."""
    DEAD = "dead"
    """Failed too often; kept in the dead letters."""
    PAUSED = "paused"
    """Does not fire until it is resumed."""
    WAITING = "waiting"
    """Waits for events; each event that matches makes a firing of its own."""


TRANSITIONS: dict[TriggerStatus, frozenset[TriggerStatus]] = {
    TriggerStatus.SCHEDULED: frozenset({TriggerStatus.CLAIMED, TriggerStatus.PAUSED}),
    TriggerStatus.CLAIMED: frozenset(
        {TriggerStatus.SCHEDULED, TriggerStatus.PAUSED, TriggerStatus.COMPLETED, TriggerStatus.DEAD}
    ),
    TriggerStatus.PAUSED: frozenset({TriggerStatus.SCHEDULED, TriggerStatus.WAITING, TriggerStatus.COMPLETED}),
    TriggerStatus.WAITING: frozenset({TriggerStatus.PAUSED, TriggerStatus.COMPLETED}),
    TriggerStatus.COMPLETED: frozenset(),
    TriggerStatus.DEAD: frozenset({TriggerStatus.SCHEDULED, TriggerStatus.PAUSED}),
}
"""Which status may follow which. A save starts over from any status; otherwise only a redrive leads out of dead, and
only the end of a claim leads out of claimed."""

PENDING = frozenset({TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED})
"""The statuses of triggers that will still fire at their time."""

ENDED = frozenset({TriggerStatus.COMPLETED, TriggerStatus.DEAD})
"""The statuses of triggers that no longer fire by themselves."""


@dataclass(frozen=True, slots=True)
class TriggerDraft:
    """A trigger that a caller wants stored: id and partition key are identifiers, the payload is JSON text or empty.

    `epoch` is the epoch of the owner's record, 0 to 2^53 - 1.
    """

    id: str
    partition_key: str
    schedule: Schedule
    payload_json: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Trigger:
    """A stored trigger; times in milliseconds since the epoch.

    `planned_ms` is the time that is or was to be delivered next; for a trigger that listens to events, the planned time
    of its latest firing. `revision` rises with each save that changed something. `failures` counts how often in a row a
    claim was refused or lapsed, `fired` how many claims were acknowledged since the trigger was scheduled anew. If
    `paused` while a claim runs, the trigger is paused when the claim ends. `pending` counts the firings that wait or
    are leased, `dropped` those that were dropped because too many waited. One firing for an `event` is stored like a
    trigger that fires once; its payload is the event's.
    """

    id: str
    partition_key: str
    schedule: Schedule
    payload_json: str
    epoch: int
    status: TriggerStatus
    planned_ms: int
    failures: int
    last_error: str
    revision: int
    created_at_ms: int
    fired: int = 0
    paused: bool = False
    pause_note: str = ""
    pending: int = 0
    dropped: int = 0
    event: Event | None = None

    @property
    def delivery_ms(self) -> int:
        """When the planned time is to be delivered, with jitter."""
        return self.schedule.delivery_ms(self.id, self.planned_ms)

    @property
    def next_fire_ms(self) -> int | None:
        """The next planned time, None when none is pending."""
        return self.planned_ms if self.status in PENDING else None
