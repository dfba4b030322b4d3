"""Flows as the scheduler knows them, and the results of analyzing or registering one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.client import json_text
from tradewind.client.errors import Violation
from tradewind.client.reruns import StopRecord, stop_from
from tradewind.client.wire import Members, moment


class FlowStatus(StrEnum):
    """The status of a flow."""

    REGISTERED = "registered"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    DELETING = "deleting"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ComponentStructure:
    """Nodes of a flow that edges connect; if edges form a loop, `is_dag` is false and `cycle_path` names its nodes."""

    component_id: str
    nodes: tuple[str, ...]
    entry_nodes: tuple[str, ...]
    node_count: int
    is_dag: bool
    error: str
    cycle_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a flow, why and when; `by` is `system` when too many cycles had failed."""

    by: str
    note: str
    paused_at: datetime | None


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow on record. `last_cycle` is None before its first cycle, `next_execution` is None when none is planned.

    `begins_on` describes the events on which its cycles begin; "" if their times are planned.
    """

    flow_id: str
    user_id: str
    status: FlowStatus
    config_json: str
    components: tuple[ComponentStructure, ...]
    last_cycle: int | None
    next_execution: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    revision: int
    labels: Mapping[str, str]
    running_cycles: int
    etag: str
    pause: Pause | None = None
    stop: StopRecord | None = None
    begins_on: str = ""

    @property
    def config(self) -> Any:
        """Its definition in Weather Syntax, secrets as references."""
        return json_text.decode(self.config_json)

    @property
    def node_count(self) -> int:
        """How many nodes it has."""
        return sum(component.node_count for component in self.components)


@dataclass(frozen=True, slots=True)
class RegisteredFlow:
    """The result of registering; `changed` is false if the definition was the same, `warnings` did not prevent it."""

    flow: FlowRecord
    changed: bool
    warnings: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class FlowAnalysis:
    """What is known of a definition: its structure as far as it could be determined, every fault, and warnings."""

    components: tuple[ComponentStructure, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether RegisterFlow would accept it."""
        return not self.violations


_STATUSES = Members(flow_pb2.FlowStatus, FlowStatus)


def flow_from(message: flow_pb2.Flow) -> FlowRecord:
    """Read a flow."""
    return FlowRecord(
        flow_id=message.flow_id,
        user_id=message.user_id,
        status=flow_status_from(message.status),
        config_json=message.config_json,
        components=components_from(message.structure),
        last_cycle=message.last_cycle if message.last_cycle >= 0 else None,
        next_execution=moment(message, "next_execution"),
        created_at=moment(message, "created_at"),
        updated_at=moment(message, "updated_at"),
        revision=message.revision,
        labels=dict(message.labels),
        running_cycles=message.running_cycles,
        etag=message.etag,
        pause=_pause_from(message.pause) if message.HasField("pause") else None,
        stop=stop_from(message),
        begins_on=message.begins_on,
    )


def _pause_from(message: flow_pb2.Pause) -> Pause:
    return Pause(message.by, message.note, moment(message, "paused_at"))


def flow_status_from(value: int) -> FlowStatus:
    """Read a status."""
    return _STATUSES[value]


def violations_from(messages: Iterable[flow_pb2.Violation]) -> tuple[Violation, ...]:
    """Read faults or warnings."""
    return tuple(Violation(each.path, each.message) for each in messages)


def components_from(message: flow_pb2.FlowStructure) -> tuple[ComponentStructure, ...]:
    """Read components, in the order of their ids."""
    found = [
        ComponentStructure(
            component_id,
            tuple(component.nodes),
            tuple(component.entry_nodes),
            component.node_count,
            component.is_dag,
            component.error,
            tuple(component.cycle_path),
        )
        for component_id, component in message.components.items()
    ]
    # Ids are numbers in text: "10" comes after "9".
    return tuple(sorted(found, key=lambda each: (len(each.component_id), each.component_id)))
