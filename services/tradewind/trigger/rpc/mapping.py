"""Maps values of the domain to messages."""

from collections.abc import Iterator

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.timestamps import timestamp
from tradewind.trigger.domain.claim import DueTrigger, Firing
from tradewind.trigger.domain.event import Event, trigger_of
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.rpc import schedule_mapping
from tradewind.trigger.use_cases.parcel import Parcel

_MESSAGE_BYTES = 2 * 1024 * 1024
_FRAME_BYTES = 8
"""How many bytes a list entry needs in a message besides its own, at most."""

_STATUS = {
    TriggerStatus.SCHEDULED: trigger_pb2.TRIGGER_STATUS_SCHEDULED,
    TriggerStatus.CLAIMED: trigger_pb2.TRIGGER_STATUS_CLAIMED,
    TriggerStatus.COMPLETED: trigger_pb2.TRIGGER_STATUS_COMPLETED,
    TriggerStatus.DEAD: trigger_pb2.TRIGGER_STATUS_DEAD,
    TriggerStatus.PAUSED: trigger_pb2.TRIGGER_STATUS_PAUSED,
    TriggerStatus.WAITING: trigger_pb2.TRIGGER_STATUS_WAITING,
}


def trigger(stored: Trigger, queue: str = "") -> trigger_pb2.Trigger:
    """Return a trigger of a queue or of a flow as a message; a firing has its trigger's id and its own `firing_id`."""
    next_ms = stored.next_fire_ms
    return trigger_pb2.Trigger(
        trigger_id=trigger_of(stored.id),
        partition_key=stored.partition_key,
        schedule=schedule_mapping.message(stored.schedule),
        payload_json=stored.payload_json,
        epoch=stored.epoch,
        status=_STATUS[stored.status],
        next_fire_time=None if next_ms is None else timestamp(next_ms),
        failures=stored.failures,
        last_error=stored.last_error,
        revision=stored.revision,
        created_at=timestamp(stored.created_at_ms),
        fired=stored.fired,
        queue=queue,
        paused=stored.paused,
        pause_note=stored.pause_note,
        pending=stored.pending,
        dropped=stored.dropped,
        firing_id=stored.id if stored.event else "",
        event_id=stored.event.id if stored.event else "",
    )


def parcels(parcel: Parcel, queue: str) -> Iterator[pb2.ReceiveDueResponse]:
    """Yield a parcel in messages of about 2 MiB at most; the first one says what has ended, before anything else."""
    message = pb2.ReceiveDueResponse(lost_tokens=parcel.lost, ended_partitions=parcel.ended, listened=parcel.listened)
    size = message.ByteSize()
    for due in parcel.due:
        entry = _due_trigger(due, queue)
        weight = entry.ByteSize() + _FRAME_BYTES
        if size and size + weight > _MESSAGE_BYTES:
            yield message
            message, size = pb2.ReceiveDueResponse(), 0
        message.due.append(entry)
        size += weight
    yield message


def firing(line: Firing) -> trigger_pb2.Firing:
    """Return a line of the fire history as a message."""
    return trigger_pb2.Firing(
        trigger_id=trigger_of(line.trigger_id),
        planned_time=timestamp(line.planned_ms),
        attempt=line.attempt,
        outcome=line.outcome,
        ended_at=timestamp(line.at_ms),
        error=line.error,
        event_id=line.event_id,
    )


def _event(event: Event) -> trigger_pb2.Event:
    return trigger_pb2.Event(event_id=event.id, name=event.name, payload_json=event.payload_json)


def _due_trigger(due: DueTrigger, queue: str) -> trigger_pb2.DueTrigger:
    message = trigger(due.parent or due.trigger, queue)
    message.status = trigger_pb2.TRIGGER_STATUS_CLAIMED
    event = due.trigger.event
    if due.parent:
        message.epoch = due.trigger.epoch
        message.failures, message.last_error = due.trigger.failures, due.trigger.last_error
    return trigger_pb2.DueTrigger(
        trigger=message,
        event=_event(event) if event else None,
        planned_time=timestamp(due.trigger.planned_ms),
        token=due.token,
        lease_deadline=timestamp(due.deadline_ms),
        delivered_at=timestamp(due.delivered_ms),
        traceparent=due.traceparent,
    )
