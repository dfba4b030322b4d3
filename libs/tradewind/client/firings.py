"""Planned times of a flow, and events, and what became of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.client.wire import Members, moment


class FiringOutcome(StrEnum):
    """What became of a planned time."""

    FIRED = "fired"
    SKIPPED = "skipped"
    QUEUED = "queued"
    MISSED = "missed"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FiringRecord:
    """A planned time and the `cycle` that began, or why none did, for this and later times up to `last_planned_time`.

    `count` is how many planned times this stands for; 10 000 means that many or more. `event_id` is the event that
    came at `planned_time`; "" if there was none.
    """

    planned_time: datetime | None
    outcome: FiringOutcome
    cycle: int | None
    reason: str
    decided_at: datetime | None
    count: int
    last_planned_time: datetime | None
    event_id: str = ""


_OUTCOMES = Members(flow_pb2.FiringOutcome, FiringOutcome)


def firing_from(message: flow_pb2.Firing) -> FiringRecord:
    """Read what became of a planned time."""
    return FiringRecord(
        planned_time=moment(message, "planned_time"),
        outcome=_OUTCOMES[message.outcome],
        cycle=message.cycle if message.HasField("cycle") else None,
        reason=message.reason,
        decided_at=moment(message, "decided_at"),
        count=message.count,
        last_planned_time=moment(message, "last_planned_time"),
        event_id=message.event_id,
    )
