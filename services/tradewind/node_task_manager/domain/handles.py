"""Whether the edges of a plan leave by handles that its node types have: the types may be newer than the plan."""

from collections.abc import Mapping
from typing import TypeAlias

from tradewind.node_task_manager.domain.fan_out import ERRORS
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import quoted

Declared: TypeAlias = frozenset[tuple[str, frozenset[str]]]
"""Node types, each with its output handles."""


def unknown_handles(plan: Plan, declared: Declared) -> Mapping[int, str]:
    """Return the fault of each node with an edge by an output handle that it lacks, by the node's place in the plan.

    Worked out once for each plan and declaration. Nodes of types that nobody declares may have any handle.
    """
    known = plan.unknown_handles.get(declared)
    if known is None:
        known = plan.unknown_handles[declared] = _found(plan, dict(declared))
    return known


def _found(plan: Plan, outputs_of: Mapping[str, frozenset[str]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for edge in plan.edges:
        node = plan.nodes[edge.source]
        outputs = outputs_of.get(node.node_type)
        if outputs is None or edge.source_handle in outputs or (node.fan_out and edge.source_handle == ERRORS):
            continue
        names = ", ".join(map(quoted, sorted(outputs)))
        hint = NearestName(outputs).hint(edge.source_handle, f"; it has {names}")
        found[edge.source] = (
            f"an edge to {quoted(plan.nodes[edge.target].node_id)} uses output handle "
            f"{quoted(edge.source_handle)}, which node type {quoted(node.node_type)} does not have{hint}"
        )
    return found
