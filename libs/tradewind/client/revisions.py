"""Revisions of a flow, and how two definitions of one differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tradewind.api.scheduler.v1 import revision_pb2
from tradewind.client import json_text
from tradewind.client.flows import FlowRecord
from tradewind.client.wire import Members, moment


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """A definition between one change and the next: who made it, when and why.

    Equal definitions have equal digests. `open_runs` is how many runs that have not ended use this revision.
    """

    revision: int
    created_at: datetime | None
    by: str
    note: str
    digest: str
    labels: Mapping[str, str]
    open_runs: int
    current: bool


@dataclass(frozen=True, slots=True)
class RevisionDefinition:
    """A revision with its definition."""

    revision: RevisionRecord
    config_json: str

    @property
    def config(self) -> Any:
        """Its definition in Weather Syntax, secrets as references."""
        return json_text.decode(self.config_json)


@dataclass(frozen=True, slots=True)
class RevisedFlow:
    """The result of a change; `changed` is false if nothing differed, `warnings` did not prevent it."""

    flow: FlowRecord
    changed: bool
    warnings: tuple[str, ...] = ()


class ChangeKind(StrEnum):
    """How two definitions differ in one respect."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs; values are JSON text, empty if the field is missing and so has its default."""

    path: str
    before_json: str
    after_json: str


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that differs: the whole node if it was added or removed, else `fields`, with paths within the node."""

    node_id: str
    kind: ChangeKind
    before_json: str
    after_json: str
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class EdgeChange:
    """An edge that was added or removed."""

    kind: ChangeKind
    source: str
    source_handle: str
    target: str
    target_handle: str


@dataclass(frozen=True, slots=True)
class FlowDiff:
    """How two definitions differ; `settings` is everything but nodes and edges: schedule, policies, limits, labels.

    Order matters: that of nodes numbers the components, that of edges is the order of gathered values.
    """

    nodes: tuple[NodeChange, ...]
    edges: tuple[EdgeChange, ...]
    settings: tuple[FieldChange, ...]
    nodes_reordered: bool
    edges_reordered: bool

    @property
    def empty(self) -> bool:
        """Whether they are equal."""
        reordered = self.nodes_reordered or self.edges_reordered
        return not (self.nodes or self.edges or self.settings or reordered)


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """How two revisions differ."""

    from_revision: int
    to_revision: int
    diff: FlowDiff


_KINDS = Members(revision_pb2.ChangeKind, ChangeKind)


def revision_from(message: revision_pb2.Revision) -> RevisionRecord:
    """Read a revision."""
    return RevisionRecord(
        revision=message.revision,
        created_at=moment(message, "created_at"),
        by=message.by,
        note=message.note,
        digest=message.digest,
        labels=dict(message.labels),
        open_runs=message.open_runs,
        current=message.current,
    )


def diff_from(message: revision_pb2.FlowDiff) -> FlowDiff:
    """Read what differs."""
    return FlowDiff(
        nodes=tuple(
            NodeChange(
                node.node_id,
                _KINDS[node.kind],
                node.before_json,
                node.after_json,
                tuple(_field(field) for field in node.fields),
            )
            for node in message.nodes
        ),
        edges=tuple(
            EdgeChange(
                _KINDS[change.kind],
                change.edge.source,
                change.edge.source_handle,
                change.edge.target,
                change.edge.target_handle,
            )
            for change in message.edges
        ),
        settings=tuple(_field(field) for field in message.settings),
        nodes_reordered=message.nodes_reordered,
        edges_reordered=message.edges_reordered,
    )


def _field(message: revision_pb2.FieldChange) -> FieldChange:
    return FieldChange(message.path, message.before_json, message.after_json)
