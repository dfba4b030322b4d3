"""Workers and node types as the registry knows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tradewind.api.registry.v1 import node_type_pb2, worker_pb2
from tradewind.client import json_text
from tradewind.client.wire import Members, moment


class WorkerStatus(StrEnum):
    """The status of a worker."""

    ACTIVE = "active"
    DRAINING = "draining"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker on record; `running` is as of its last heartbeat."""

    worker_id: str
    incarnation: str
    status: WorkerStatus
    api_url: str
    node_types: tuple[str, ...]
    capacity: int
    running: int
    registered_at: datetime | None
    last_heartbeat: datetime | None
    host: str
    pid: int
    sdk: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InputHandle:
    """An input of a node type; with `gather` it takes several edges, whose values arrive as a list."""

    name: str
    schema: Any
    required: bool
    gather: bool


@dataclass(frozen=True, slots=True)
class OutputHandle:
    """An output of a node type."""

    name: str
    schema: Any


@dataclass(frozen=True, slots=True)
class NodeType:
    """What a node type takes and emits; schemas are JSON Schemas, or None if nothing is declared."""

    type: str
    description: str
    inputs: tuple[InputHandle, ...]
    outputs: tuple[OutputHandle, ...]
    config_schema: Any
    worker_ids: tuple[str, ...]
    declared_at: datetime | None
    version: str = ""
    """Caches do not reuse results of other versions."""
    built_in: bool = False
    """Whether it is part of Tradewind and needs no worker."""


_STATUSES = Members(worker_pb2.WorkerStatus, WorkerStatus)


def worker_from(message: worker_pb2.Worker) -> WorkerRecord:
    """Read a worker."""
    return WorkerRecord(
        worker_id=message.worker_id,
        incarnation=message.incarnation,
        status=_STATUSES[message.status],
        api_url=message.api_url,
        node_types=tuple(message.node_types),
        capacity=message.capacity,
        running=message.running,
        registered_at=moment(message, "registered_at"),
        last_heartbeat=moment(message, "last_heartbeat"),
        host=message.host,
        pid=message.pid,
        sdk=message.sdk,
        labels=dict(message.labels),
    )


def node_type_from(message: node_type_pb2.NodeType) -> NodeType:
    """Read a node type."""
    return NodeType(
        type=message.type,
        description=message.description,
        inputs=tuple(
            InputHandle(each.name, json_text.decode(each.schema_json), each.required, each.gather)
            for each in message.inputs
        ),
        outputs=tuple(OutputHandle(each.name, json_text.decode(each.schema_json)) for each in message.outputs),
        config_schema=json_text.decode(message.config_schema_json),
        worker_ids=tuple(message.worker_ids),
        declared_at=moment(message, "declared_at"),
        version=message.version,
        built_in=message.built_in,
    )
