"""Values of the domain as messages."""

from collections.abc import Iterator

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.trigger.domain.claim import DueTrigger
from tradewind.trigger.domain.trigger import Trigger, TriggerStatus
from tradewind.trigger.rpc import schedule_mapping
from tradewind.trigger.rpc.times import timestamp
from tradewind.trigger.use_cases.deliver_due import Parcel

_MESSAGE_BYTES = 2 * 1024 * 1024
_ENVELOPE_BYTES = 512
"""What a due trigger takes besides its payload and texts, generously."""

_STATUS = {
    TriggerStatus.SCHEDULED: trigger_pb2.TRIGGER_STATUS_SCHEDULED,
    TriggerStatus.CLAIMED: trigger_pb2.TRIGGER_STATUS_CLAIMED,
    TriggerStatus.COMPLETED: trigger_pb2.TRIGGER_STATUS_COMPLETED,
    TriggerStatus.DEAD: trigger_pb2.TRIGGER_STATUS_DEAD,
}


def trigger(stored: Trigger) -> trigger_pb2.Trigger:
    """Return a stored trigger as a message."""
    next_ms = stored.next_fire_ms
    return trigger_pb2.Trigger(
        trigger_id=stored.id,
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
    )


def parcels(parcel: Parcel) -> Iterator[pb2.ReceiveDueResponse]:
    """Return what a receiver is told in messages of at most 2 MiB or so; what ended comes first, so that it is heard
    before anything else."""
    message = pb2.ReceiveDueResponse(lost_tokens=parcel.lost, ended_partitions=parcel.ended)
    size = sum(len(token) + 8 for token in parcel.lost)
    for due in parcel.due:
        weight = _ENVELOPE_BYTES + 3 * len(due.trigger.id) + len(due.trigger.payload_json.encode())
        if size and size + weight > _MESSAGE_BYTES:
            yield message
            message, size = pb2.ReceiveDueResponse(), 0
        message.due.append(_due_trigger(due))
        size += weight
    yield message


def _due_trigger(due: DueTrigger) -> trigger_pb2.DueTrigger:
    return trigger_pb2.DueTrigger(
        trigger=trigger(due.trigger),
        planned_time=timestamp(due.trigger.planned_ms),
        token=due.token,
        lease_deadline=timestamp(due.deadline_ms),
        delivered_at=timestamp(due.delivered_ms),
    )
