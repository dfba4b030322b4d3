"""Checks a flow against the declarations that live workers have made of its node types."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tradewind.scheduler.domain.built_in_types import BuiltInDeclaration, warn_of_ignored_fields
from tradewind.scheduler.domain.edge_types import warn_of_values_that_never_fit
from tradewind.scheduler.domain.fan_out import ERRORS
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.mapped_nodes import warn_of_errors_handle
from tradewind.scheduler.domain.node_types import NodeTypeCatalogue, NodeTypeDeclaration
from tradewind.scheduler.domain.paths import join, join_all
from tradewind.scheduler.domain.secret_references import within_secret
from tradewind.scheduler.domain.weather_nodes import EdgeDraft, NodeDraft
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import quoted


@dataclass(slots=True)
class _IncomingEdges:
    """The edges that reach a node; `handles` holds the path of the first edge into each handle."""

    handles: dict[str, str] = field(default_factory=dict)
    has_edges: bool = False


def check_declared_types(
    nodes: Mapping[str, NodeDraft],
    edges: Collection[EdgeDraft],
    catalogue: NodeTypeCatalogue | None,
    faults: FaultList,
    warnings: FaultList,
    handlers: Collection[str],
    inputs: Collection[str],
) -> None:
    """Check handles, single inputs, required inputs and configs; `nodes` is by id, and other nodes are not checked.

    Without a catalogue, only nodes of built-in types are checked.

    A type that nobody offers is only a warning, at its first node: a worker may yet come. So is a required input of an
    entry node that nothing in the flow supplies, because the inputs of a run may supply it. Entry nodes among
    `handlers`, which run on failure or last, are given `outcome`; all are given `inputs`, which the schedule supplies.
    """
    declarations = _declarations(nodes.values(), catalogue, warnings)
    incoming = _check_edges(nodes, edges, declarations, faults)
    warn_of_errors_handle(nodes.values(), {name: each.outputs for name, each in declarations.items()}, warnings)
    warn_of_ignored_fields(nodes.values(), warnings)
    warn_of_values_that_never_fit(nodes, edges, declarations, warnings)
    for node_id, node in nodes.items():
        declaration = declarations.get(node.node_type or "")
        if declaration is None:
            continue
        _check_config(node, declaration, faults)
        has_edges = incoming[node_id].has_edges
        given = {*incoming[node_id].handles, *node.config}
        if not has_edges:
            given.update(inputs, ("outcome",) if node_id in handlers else ())
        for name, declared in declaration.inputs.items():
            if declared.required and name not in given:
                (faults if has_edges else warnings).add(node.path, _required_message(node, name, has_edges))


def _declarations(
    nodes: Iterable[NodeDraft], catalogue: NodeTypeCatalogue | None, warnings: FaultList
) -> dict[str, NodeTypeDeclaration]:
    found: dict[str, NodeTypeDeclaration] = {}
    seen: set[str] = set()
    for node in nodes:
        if node.node_type is None or node.node_type in seen:
            continue
        seen.add(node.node_type)
        built_in = BuiltInDeclaration.of(node.node_type)
        declaration = built_in or (catalogue.declared(node.node_type) if catalogue is not None else None)
        if declaration is not None:
            found[node.node_type] = declaration
        elif catalogue is not None:
            message = f"no live worker offers node type {quoted(node.node_type)}; its nodes wait until one does"
            message += catalogue.hint(node.node_type)
            warnings.add(join(node.path, "type"), message)
    return found


def _check_config(node: NodeDraft, declaration: NodeTypeDeclaration, faults: FaultList) -> None:
    for keys, message in declaration.config_faults(node.config):
        if within_secret(keys, node.secrets):
            continue
        if len(keys) == 1 and not faults.full and (known := declaration.config_keys) and keys[0] not in known:
            message += NearestName(known).hint_or_all(str(keys[0]))
        faults.add(join_all(join(node.path, "config"), keys), message)


def _check_edges(
    nodes: Mapping[str, NodeDraft],
    edges: Iterable[EdgeDraft],
    declarations: Mapping[str, NodeTypeDeclaration],
    faults: FaultList,
) -> dict[str, _IncomingEdges]:
    incoming: dict[str, _IncomingEdges] = defaultdict(_IncomingEdges)
    for edge in edges:
        source = nodes.get(edge.source or "")
        if source is not None and edge.source_handle is not None:
            source_type = declarations.get(source.node_type or "")
            known = source.mapped_input is not None and edge.source_handle == ERRORS
            if source_type is not None and edge.source_handle not in source_type.outputs and not known:
                message = _unknown_handle(source, "output", edge.source_handle, source_type.outputs, faults)
                faults.add(join(edge.path, "source_handle"), message)
        target = nodes.get(edge.target or "")
        if target is None:
            continue
        target_edges = incoming[edge.target or ""]
        target_edges.has_edges = True
        if edge.target_handle is None:
            continue
        target_type = declarations.get(target.node_type or "")
        if target_type is not None:
            path = join(edge.path, "target_handle")
            declared = target_type.inputs.get(edge.target_handle)
            if declared is None:
                faults.add(path, _unknown_handle(target, "input", edge.target_handle, target_type.inputs, faults))
            elif not declared.gather and (first := target_edges.handles.get(edge.target_handle)) is not None:
                faults.add(path, _second_edge_message(target, edge.target_handle, first))
        target_edges.handles.setdefault(edge.target_handle, edge.path)
    return incoming


def _unknown_handle(node: NodeDraft, kind: str, handle: str, handles: Collection[str], faults: FaultList) -> str:
    message = f"node type {quoted(node.node_type or '')} has no {kind} handle {quoted(handle)}"
    if faults.full:
        return message
    return message + NearestName(handles).hint_or_all(handle)


def _second_edge_message(node: NodeDraft, handle: str, first: str) -> str:
    return (
        f"input {quoted(handle)} of node {quoted(node.node_id or '')} takes only one edge, and {first} already "
        f"feeds it; only an input that node type {quoted(node.node_type or '')} declares as gathering takes several"
    )


def _required_message(node: NodeDraft, name: str, has_edges: bool) -> str:
    message = f"input {quoted(name)} of node type {quoted(node.node_type or '')} is required"
    if has_edges:
        return f'{message}; give it an edge, or a value as "{name}" in config'
    return f"{message}; neither an edge nor config gives it, so the inputs of every run must"
