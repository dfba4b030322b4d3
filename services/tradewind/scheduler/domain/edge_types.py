"""Compares what edges bring with what the inputs take that they lead into."""

from collections.abc import Iterable, Mapping

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.node_types import NodeTypeDeclaration
from tradewind.scheduler.domain.weather_nodes import EdgeDraft, NodeDraft
from tradewind.server.json_types import ANY, ARRAY, JsonTypes
from tradewind.server.quoting import quoted


def warn_of_values_that_never_fit(
    nodes: Mapping[str, NodeDraft],
    edges: Iterable[EdgeDraft],
    declarations: Mapping[str, NodeTypeDeclaration],
    warnings: FaultList,
) -> None:
    """Warn of edges whose values have none of the types that their input takes; `nodes` is by id.

    It is no fault, because a node may convert what it gets, as pydantic does.
    """
    for edge in edges:
        source, target = nodes.get(edge.source or ""), nodes.get(edge.target or "")
        if source is None or target is None or edge.source_handle is None or edge.target_handle is None:
            continue
        given = _given(source, edge.source_handle, declarations.get(source.node_type or ""))
        taken = _taken(target, edge.target_handle, declarations.get(target.node_type or ""))
        if given.isdisjoint(taken):
            output = f"output {quoted(edge.source_handle)} of node {quoted(edge.source or '')}"
            input = f"input {quoted(edge.target_handle)} of node {quoted(edge.target or '')}"
            warnings.add(edge.path, f"{output} is of type {_named(given)}, but {input} takes {_named(taken)}")


def _given(node: NodeDraft, handle: str, declaration: NodeTypeDeclaration | None) -> JsonTypes:
    if node.mapped_input is not None:
        return ARRAY
    return declaration.outputs.get(handle, ANY) if declaration is not None else ANY


def _taken(node: NodeDraft, handle: str, declaration: NodeTypeDeclaration | None) -> JsonTypes:
    if handle == node.mapped_input:
        return ARRAY
    declared = declaration.inputs.get(handle) if declaration is not None else None
    return declared.types if declared is not None else ANY


def _named(types: JsonTypes) -> str:
    return " or ".join(sorted(types - {"integer"} if "number" in types else types)) or "nothing"
