"""Maps flows to messages."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.scheduler.domain.firing import Firing, FiringOutcome
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.structure import FlowStructure
from tradewind.server.faults import Violation
from tradewind.server.timestamps import set_timestamp

FLOW_STATUS = {
    FlowStatus.REGISTERED: flow_pb2.FLOW_STATUS_REGISTERED,
    FlowStatus.RUNNING: flow_pb2.FLOW_STATUS_RUNNING,
    FlowStatus.PAUSED: flow_pb2.FLOW_STATUS_PAUSED,
    FlowStatus.STOPPED: flow_pb2.FLOW_STATUS_STOPPED,
    FlowStatus.COMPLETED: flow_pb2.FLOW_STATUS_COMPLETED,
    FlowStatus.FAILED: flow_pb2.FLOW_STATUS_FAILED,
    FlowStatus.DELETING: flow_pb2.FLOW_STATUS_DELETING,
}
_FIRING_OUTCOME = {
    FiringOutcome.FIRED: flow_pb2.FIRING_OUTCOME_FIRED,
    FiringOutcome.SKIPPED: flow_pb2.FIRING_OUTCOME_SKIPPED,
    FiringOutcome.QUEUED: flow_pb2.FIRING_OUTCOME_QUEUED,
    FiringOutcome.MISSED: flow_pb2.FIRING_OUTCOME_MISSED,
    FiringOutcome.DROPPED: flow_pb2.FIRING_OUTCOME_DROPPED,
}
STATUS_OF_FLOW = {number: status for status, number in FLOW_STATUS.items()}


def flow(record: FlowRecord) -> flow_pb2.Flow:
    """Return a flow on record as a message."""
    message = flow_pb2.Flow(
        flow_id=record.flow_id,
        user_id=record.user_id,
        status=FLOW_STATUS[record.status],
        config_json=record.config_json,
        structure=_structure(msgspec.json.decode(record.structure_json)),
        last_cycle=record.last_cycle,
        revision=record.revision,
        labels=dict(record.labels),
        running_cycles=record.running_cycles,
        etag=record.etag,
    )
    if record.schedule.on:
        message.begins_on = record.schedule.on.description
    if record.next_execution_ms > 0:
        set_timestamp(message.next_execution, record.next_execution_ms)
    if record.pause is not None:
        message.pause.by, message.pause.note = record.pause.by, record.pause.note
        set_timestamp(message.pause.paused_at, record.pause.at_ms)
    if record.stop is not None:
        message.stop.by, message.stop.reason = record.stop.by, record.stop.reason
        set_timestamp(message.stop.at, record.stop.at_ms)
    set_timestamp(message.created_at, record.created_ms)
    set_timestamp(message.updated_at, record.updated_ms)
    return message


def firing(line: Firing) -> flow_pb2.Firing:
    """Return the outcome of planned times as a message."""
    message = flow_pb2.Firing(
        outcome=_FIRING_OUTCOME[line.outcome], reason=line.reason, count=line.count, event_id=line.event_id
    )
    if line.cycle >= 0:
        message.cycle = line.cycle
    set_timestamp(message.planned_time, line.planned_ms)
    set_timestamp(message.decided_at, line.at_ms)
    set_timestamp(message.last_planned_time, line.last_ms)
    return message


def structure(found: FlowStructure) -> flow_pb2.FlowStructure:
    """Return the structure of a definition as a message."""
    return _structure(found.to_dict())


def violations(found: Iterable[Violation]) -> list[flow_pb2.Violation]:
    """Return faults or warnings as messages."""
    return [flow_pb2.Violation(path=violation.path, message=violation.message) for violation in found]


def _structure(shape: Mapping[str, Any]) -> flow_pb2.FlowStructure:
    message = flow_pb2.FlowStructure(component_count=shape["component_count"])
    for component_id, component in shape["components"].items():
        message.components[component_id].CopyFrom(
            flow_pb2.ComponentStructure(
                nodes=component["nodes"],
                entry_nodes=component["entry_nodes"],
                node_count=component["node_count"],
                is_dag=component["is_dag"],
                error=component.get("error", ""),
                cycle_path=component.get("cycle_path", ()),
            )
        )
    return message
