"""The differences between two definitions of a flow."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.json_text import canonical_json
from tradewind.scheduler.domain.paths import join

Edge = tuple[str, str, str, str]
"""Source, its handle, target, its handle."""
_EDGE_FIELDS = ("source", "source_handle", "target", "target_handle")
_ABSENT = object()


class ChangeKind(StrEnum):
    """How two definitions differ in one respect."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs; its values are JSON text, empty where the field is absent."""

    path: str
    before_json: str
    after_json: str


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that differs: the whole node if it was added or removed, else `fields`, whose paths begin at the node."""

    node_id: str
    kind: ChangeKind
    before_json: str = ""
    after_json: str = ""
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class EdgeChange:
    """An edge that was added or removed."""

    kind: ChangeKind
    edge: Edge


@dataclass(frozen=True, slots=True)
class FlowDiff:
    """The changes that lead from one definition to another; `settings` is everything but nodes and edges."""

    nodes: tuple[NodeChange, ...] = ()
    edges: tuple[EdgeChange, ...] = ()
    settings: tuple[FieldChange, ...] = ()
    nodes_reordered: bool = False
    edges_reordered: bool = False

    @property
    def size(self) -> int:
        """Roughly how many bytes the diff takes in a message."""
        fields = (*self.settings, *(field for node in self.nodes for field in node.fields))
        values = sum(len(each.before_json) + len(each.after_json) + len(each.path) for each in fields)
        whole = sum(len(node.before_json) + len(node.after_json) + len(node.node_id) for node in self.nodes)
        return values + whole + 20 * len(fields) + 20 * len(self.nodes) + 200 * len(self.edges)


def diff_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> FlowDiff:
    """Return the changes that lead from one flow to another, both without faults and in Weather Syntax. Linear time."""
    nodes = [{node["id"]: node for node in flow["nodes"]} for flow in (before, after)]
    edges = [[_edge(edge) for edge in flow.get("edges", ())] for flow in (before, after)]
    removed, added = Counter(edges[0]) - Counter(edges[1]), Counter(edges[1]) - Counter(edges[0])
    settings = [{key: flow[key] for key in flow if key not in ("nodes", "edges")} for flow in (before, after)]
    return FlowDiff(
        tuple(_node_changes(*nodes)),
        (
            *(EdgeChange(ChangeKind.REMOVED, edge) for edge in removed.elements()),
            *(EdgeChange(ChangeKind.ADDED, edge) for edge in added.elements()),
        ),
        tuple(_field_changes("", *settings)),
        [name for name in nodes[0] if name in nodes[1]] != [name for name in nodes[1] if name in nodes[0]],
        _without(edges[0], removed) != _without(edges[1], added),
    )


def _node_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[NodeChange]:
    for node_id, node in before.items():
        if node_id not in after:
            yield NodeChange(node_id, ChangeKind.REMOVED, before_json=canonical_json(node))
        elif fields := tuple(_field_changes("", node, after[node_id])):
            yield NodeChange(node_id, ChangeKind.CHANGED, fields=fields)
    for node_id, node in after.items():
        if node_id not in before:
            yield NodeChange(node_id, ChangeKind.ADDED, after_json=canonical_json(node))


def _field_changes(path: str, before: object, after: object) -> Iterator[FieldChange]:
    """Yield the fields that differ. Objects are compared field by field, lists as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _field_changes(join(path, key), before.get(key, _ABSENT), after.get(key, _ABSENT))
        return
    # Compared as text, because 1 == True in Python.
    texts = ["" if value is _ABSENT else canonical_json(value) for value in (before, after)]
    if texts[0] != texts[1]:
        yield FieldChange(path, *texts)


def _edge(edge: Mapping[str, str]) -> Edge:
    source, source_handle, target, target_handle = (edge[name] for name in _EDGE_FIELDS)
    return source, source_handle, target, target_handle


def _without(edges: Sequence[Edge], gone: Iterable[Edge]) -> list[Edge]:
    left_out = set(gone)
    return [edge for edge in edges if edge not in left_out]
