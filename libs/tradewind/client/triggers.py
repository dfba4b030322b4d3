"""Triggers as clients know them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tradewind.api.trigger.v1 import trigger_pb2, trigger_service_pb2
from tradewind.client.json_text import decode
from tradewind.client.wire import Members, moment


class TriggerStatus(StrEnum):
    """The status of a trigger."""

    UNKNOWN = "unknown"
    """A status that this version does not know."""
    SCHEDULED = "scheduled"
    """Waits for its time, or for the delay after a failure."""
    CLAIMED = "claimed"
    """Leased to a receiver."""
    COMPLETED = "completed"
    """Fired for the last time."""
    DEAD = "dead"
    """Was refused too often."""
    PAUSED = "paused"
    """Does not fire until it is resumed."""
    WAITING = "waiting"
    """Waits for events."""


_STATUS = Members(trigger_pb2.TriggerStatus, TriggerStatus)


@dataclass(frozen=True, slots=True)
class TriggerRecord:
    """A trigger of a queue; times in UTC.

    `schedule` says in words when it fires, `payload` is its decoded JSON. `failures` counts how often in a row it was
    refused, `fired` how often it was acknowledged, `pending` the firings for events that wait or are leased, `dropped`
    the firings that were dropped because too many waited. `firing_id` and `event_id` are set only for a dead firing.
    """

    trigger_id: str
    queue: str
    schedule: str
    status: TriggerStatus
    next_fire_time: datetime | None
    payload: Any
    failures: int
    last_error: str
    fired: int
    pending: int
    dropped: int
    paused: bool
    pause_note: str
    revision: int
    created_at: datetime | None
    firing_id: str = ""
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class TriggerFiring:
    """How a planned time, or a firing for an event, ended: `outcome` is `fired` or `dead`."""

    trigger_id: str
    planned_time: datetime | None
    attempt: int
    outcome: str
    ended_at: datetime | None
    error: str
    event_id: str


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """What became of an event: how many triggers it matched, fired, had fired before, and found full (`dropped`).

    `listeners` counts the triggers that listen to events of this name, matched or not; None if the server is older.
    """

    event_id: str
    matched: int
    fired: int
    duplicates: int
    dropped: int
    listeners: int | None = None


@dataclass(frozen=True, slots=True)
class TriggerCounts:
    """How many triggers of a queue have each status; `orphans` counts triggers that the store has lost, normally 0."""

    triggers: int
    scheduled: int
    claimed: int
    dead: int
    orphans: int
    first_due: datetime | None


def trigger_from(message: trigger_pb2.Trigger) -> TriggerRecord:
    """Read a trigger."""
    return TriggerRecord(
        trigger_id=message.trigger_id,
        queue=message.queue,
        schedule=described(message.schedule),
        status=_STATUS[message.status],
        next_fire_time=moment(message, "next_fire_time"),
        payload=decode(message.payload_json),
        failures=message.failures,
        last_error=message.last_error,
        fired=message.fired,
        pending=message.pending,
        dropped=message.dropped,
        paused=message.paused,
        pause_note=message.pause_note,
        revision=message.revision,
        created_at=moment(message, "created_at"),
        firing_id=message.firing_id,
        event_id=message.event_id,
    )


def trigger_firing_from(message: trigger_pb2.Firing) -> TriggerFiring:
    """Read a line of the fire history."""
    return TriggerFiring(
        message.trigger_id,
        moment(message, "planned_time"),
        message.attempt,
        message.outcome,
        moment(message, "ended_at"),
        message.error,
        message.event_id,
    )


def published_from(message: trigger_service_pb2.PublishEventResponse) -> PublishedEvent:
    """Read what became of an event."""
    listeners = message.listeners if message.HasField("listeners") else None
    return PublishedEvent(
        message.event_id, message.matched, message.fired, message.duplicates, message.dropped, listeners
    )


def counts_from(message: trigger_service_pb2.CountTriggersResponse) -> TriggerCounts:
    """Read counts."""
    return TriggerCounts(
        message.triggers,
        message.scheduled,
        message.claimed,
        message.dead,
        message.orphans,
        moment(message, "first_due"),
    )


def described(schedule: trigger_pb2.Schedule) -> str:
    """Return in words when a schedule fires."""
    match schedule.WhichOneof("kind"):
        case "once":
            return f"once at {schedule.once.at.ToJsonString()}"
        case "interval":
            return f"every {schedule.interval.interval.ToJsonString()}"
        case "cron":
            return f'cron "{schedule.cron.expression}" {schedule.cron.time_zone or "UTC"}'
        case "times":
            return f"at {len(schedule.times.at)} times"
        case "delay":
            return f"once after {schedule.delay.ToJsonString()}"
        case "event":
            return f"event {schedule.event.name} {schedule.event.filter_json}".rstrip()
    return "unknown"
