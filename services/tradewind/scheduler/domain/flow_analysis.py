"""Analyses a flow: as much of its structure as can be made out, and every fault of the definition at once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.closed_paths import closed_paths
from tradewind.scheduler.domain.declared_types import check_declared_types
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.flow_definition import FlowDefinition, OverlapPolicy
from tradewind.scheduler.domain.handler_nodes import check_handlers
from tradewind.scheduler.domain.mapped_nodes import check_mapped_nodes
from tradewind.scheduler.domain.node_types import NodeTypeCatalogue
from tradewind.scheduler.domain.paths import join
from tradewind.scheduler.domain.schedule_definition import CatchUp
from tradewind.scheduler.domain.structure import FlowStructure, structure_of
from tradewind.scheduler.domain.weather import LARGEST_FLOW_BYTES, FlowDraft
from tradewind.scheduler.domain.weather_nodes import EdgeDraft, NodeDraft
from tradewind.server.faults import Violation
from tradewind.server.nearest_name import NearestName
from tradewind.server.quoting import listed, quoted

MAX_COMPONENTS = 1_000
LARGEST_ANSWER_BYTES = 4 * 1024 * 1024 - 128 * 1024
"""The most bytes that a definition and its structure may have together: a message holds both, and little else."""
_PATH_NODES_SHOWN = 10
_ID_FRAME, _COMPONENT_FRAME = 3, 64
"""The most bytes of framing around an id in a structure, and around a component."""


@dataclass(frozen=True, slots=True)
class FlowAnalysis:
    """The result of checking a draft. `definition` is set exactly when there are no violations, warnings or not."""

    structure: FlowStructure
    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    definition: FlowDefinition | None


def analyze(
    draft: FlowDraft, catalogue: NodeTypeCatalogue | None = None, caches: Collection[str] | None = None
) -> FlowAnalysis:
    """Check a draft as a whole and work out its structure; faults are returned, never raised.

    The structure has each distinct node id once and ignores edges that name no node. Without a catalogue (when there
    was nobody to ask), only nodes of built-in types are checked against their types. `caches` are the names of all
    caches; without them, the caches that nodes name are not checked.
    """
    faults = draft.faults.copy()
    warnings = FaultList()
    nodes = _distinct_nodes(draft.nodes, faults)
    joined = _check_ends(nodes, draft.edges, faults)
    check_mapped_nodes(nodes.values(), draft.edges, faults)
    check_handlers(draft, nodes, [(edge.path, ends) for edge, ends in joined], faults)
    structure = structure_of(list(nodes), [ends for _, ends in joined])
    if not structure.is_dag:
        _report_closed_paths(list(nodes), joined, faults)
    if len(structure.components) > MAX_COMPONENTS:
        faults.add(
            "nodes",
            f"{len(structure.components)} components (groups of nodes that no edge connects); at most "
            f"{MAX_COMPONENTS}: connect them or split the flow",
        )
    on = draft.definition.schedule.on if draft.definition is not None else None
    handlers = {*draft.on_failure, *draft.last}
    check_declared_types(nodes, draft.edges, catalogue, faults, warnings, handlers, on.inputs if on is not None else ())
    if caches is not None:
        _check_caches(draft.nodes, caches, faults)
    if draft.definition is not None:
        _check_answer_size(draft.definition, structure, faults)
        check_catching_up(draft.definition, warnings)
    definition = None if len(faults) else draft.definition
    return FlowAnalysis(structure, faults.violations(), warnings.violations(), definition)


def _check_answer_size(definition: FlowDefinition, structure: FlowStructure, faults: FaultList) -> None:
    size = sum(
        _COMPONENT_FRAME + sum(len(node) + _ID_FRAME for node in (*component.nodes, *component.entry_nodes))
        for component in structure.components
    )
    if size + LARGEST_FLOW_BYTES <= LARGEST_ANSWER_BYTES:
        return
    size += len(definition.to_json().encode())
    if size > LARGEST_ANSWER_BYTES:
        faults.add(
            "flow",
            f"{size} bytes with the lists of nodes and entry nodes of its components; at most {LARGEST_ANSWER_BYTES}: "
            "give nodes shorter ids, or split the flow",
        )


def check_catching_up(definition: FlowDefinition, warnings: FaultList) -> None:
    """Warn when a flow asks for cycles for all missed times, and its overlap policy drops some of them."""
    overlap = definition.overlap
    if definition.schedule.catch_up is CatchUp.ALL and overlap not in (OverlapPolicy.QUEUE_ALL, OverlapPolicy.ALLOW):
        warnings.add(
            "schedule.catch_up",
            f'"all" fires each time that was missed, but overlap "{overlap.value}" does not begin a cycle for each '
            'while another runs; "queue_all" and "allow" do',
        )


def _check_caches(nodes: Sequence[NodeDraft], caches: Collection[str], faults: FaultList) -> None:
    names = NearestName(caches)
    for node in nodes:
        if node.cache is not None and node.cache not in caches:
            choices = f"; there are {listed(sorted(caches))}, and more can be added to the system's configuration"
            faults.add(join(node.path, "cache"), f"no cache {quoted(node.cache)}{names.hint(node.cache, choices)}")


_Joined = list[tuple[EdgeDraft, tuple[str, str]]]


def _distinct_nodes(drafts: Sequence[NodeDraft], faults: FaultList) -> dict[str, NodeDraft]:
    nodes: dict[str, NodeDraft] = {}
    for draft in drafts:
        if draft.node_id is None:
            continue
        first = nodes.setdefault(draft.node_id, draft)
        if first is not draft:
            faults.add(join(draft.path, "id"), f"{quoted(draft.node_id)} is already the id of {first.path}")
    return nodes


def _check_ends(nodes: Mapping[str, NodeDraft], edges: Sequence[EdgeDraft], faults: FaultList) -> _Joined:
    """Return the edges that join known nodes, self-loops included."""
    names = NearestName(nodes)
    joined: _Joined = []
    for edge in edges:
        for name, end in (("source", edge.source), ("target", edge.target)):
            if end is not None and end not in nodes:
                hint = "" if faults.full else names.hint(end)
                faults.add(join(edge.path, name), f"no node {quoted(end)}{hint}")
        source, target = edge.source, edge.target
        if source is not None and target is not None and source in nodes and target in nodes:
            joined.append((edge, (source, target)))
            if source == target:
                faults.add(edge.path, f"node {quoted(source)} feeds itself; an edge must join two different nodes")
    return joined


def _report_closed_paths(node_ids: Sequence[str], joined: _Joined, faults: FaultList) -> None:
    """Note a closed path for each group of nodes that all reach each other; self-loops have been noted before."""
    place = {node_id: index for index, node_id in enumerate(node_ids)}
    successors: list[list[int]] = [[] for _ in node_ids]
    edge_at: dict[tuple[int, int], str] = {}
    for edge, (source, target) in joined:
        if source != target:
            successors[place[source]].append(place[target])
            edge_at.setdefault((place[source], place[target]), edge.path)
    for path in closed_paths(successors):
        steps = [node_ids[node] for node in path]
        if len(steps) > _PATH_NODES_SHOWN:
            steps = [*steps[:6], f"({len(steps) - 9} more)", *steps[-3:]]
        faults.add(edge_at[path[-2], path[-1]], f"closes a cycle: {' -> '.join(steps)}; remove one of its edges")
