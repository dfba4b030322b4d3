"""A trigger as it is stored, and the statuses it goes through."""

from dataclasses import dataclass
from enum import Enum

from tradewind.trigger.domain.schedule import Schedule


class TriggerStatus(Enum):
    """Where a trigger stands."""

    SCHEDULED = "scheduled"
    """Waits for its time, or for the delay after a failure."""
    CLAIMED = "claimed"
    """Leased to a receiver."""
    COMPLETED = "completed"
    """Fired for the last time; kept for its retention."""
    DEAD = "dead"
    """Failed too often; kept in the dead letters."""


TRANSITIONS: dict[TriggerStatus, frozenset[TriggerStatus]] = {
    TriggerStatus.SCHEDULED: frozenset({TriggerStatus.CLAIMED}),
    TriggerStatus.CLAIMED: frozenset({TriggerStatus.SCHEDULED, TriggerStatus.COMPLETED, TriggerStatus.DEAD}),
    TriggerStatus.COMPLETED: frozenset({TriggerStatus.SCHEDULED}),
    TriggerStatus.DEAD: frozenset({TriggerStatus.SCHEDULED}),
}
"""Which status may follow which. Only a save leads out of completed and dead; only a claim's end out of claimed, but
for a save that makes the claim void."""

PENDING = frozenset({TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED})
"""The statuses of triggers that will still fire."""


@dataclass(frozen=True, slots=True)
class TriggerDraft:
    """What a caller asks to be stored: id and partition key are identifiers, the payload is JSON text or empty.

    `epoch` is that of the owner's record, 0 to 2^53 - 1.
    """

    id: str
    partition_key: str
    schedule: Schedule
    payload_json: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Trigger:
    """A stored trigger; times in milliseconds since the epoch.

    `planned_ms` is the time that is or was to be delivered next; `revision` rises with each save that changed
    something; `failures` counts how often in a row a claim was refused or lapsed, `fired` how often one was
    acknowledged since it was scheduled anew.
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

    @property
    def delivery_ms(self) -> int:
        """When the planned time is to be delivered, with its jitter."""
        return self.schedule.delivery_ms(self.id, self.planned_ms)

    @property
    def next_fire_ms(self) -> int | None:
        """The next planned time, None when it fires no more."""
        return self.planned_ms if self.status in PENDING else None
