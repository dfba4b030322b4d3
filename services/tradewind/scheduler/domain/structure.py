"""The structure that edges give a flow: components, entry nodes, waves and closed paths."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.closed_paths import closed_paths

CONTAINS_CYCLE = "Contains cycle"
"""The specification's words for a component that is not a DAG."""


@dataclass(frozen=True, slots=True)
class ComponentStructure:
    """A component: nodes connected by edges, whatever their direction.

    `nodes` and the nodes of each wave are in the order of the flow. For a DAG, `waves` holds every node once: the entry
    nodes in wave 0, every other node in the wave after the last of its sources. `cycle_path` is empty for a DAG.
    Otherwise it is a closed path, which begins and ends with the same node, and `waves` holds only the nodes that do
    not depend on a closed path.
    """

    component_id: str
    nodes: tuple[str, ...]
    waves: tuple[tuple[str, ...], ...]
    cycle_path: tuple[str, ...] = ()

    @property
    def entry_nodes(self) -> tuple[str, ...]:
        """The nodes without input edges, in the order of the flow."""
        return self.waves[0] if self.waves else ()

    @property
    def is_dag(self) -> bool:
        """Whether the component has no closed path."""
        return not self.cycle_path

    @property
    def node_count(self) -> int:
        """The number of its nodes."""
        return len(self.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return it in the shape of the specification; a component that is not a DAG also has `cycle_path`."""
        shape: dict[str, Any] = {
            "nodes": list(self.nodes),
            "entry_nodes": list(self.entry_nodes),
            "node_count": self.node_count,
            "is_dag": self.is_dag,
        }
        if not self.is_dag:
            shape["error"] = CONTAINS_CYCLE
            shape["cycle_path"] = list(self.cycle_path)
        return shape


@dataclass(frozen=True, slots=True)
class FlowStructure:
    """The components of a flow, with ids "0", "1", ... in the order of their first nodes in the flow."""

    components: tuple[ComponentStructure, ...]

    @property
    def is_dag(self) -> bool:
        """Whether every component is a DAG."""
        return all(component.is_dag for component in self.components)

    def to_dict(self) -> dict[str, Any]:
        """Return it in the shape of the specification: `{"component_count": 2, "components": {"0": {...}, ...}}`."""
        return {
            "component_count": len(self.components),
            "components": {component.component_id: component.to_dict() for component in self.components},
        }


def structure_of(node_ids: Sequence[str], edges: Iterable[tuple[str, str]]) -> FlowStructure:
    """Work out the structure in time linear in nodes and edges, without recursion.

    `node_ids` are distinct, in the order of the flow; an edge (source, target) that names another node is ignored.
    """
    place = {node_id: index for index, node_id in enumerate(node_ids)}
    successors: list[list[int]] = [[] for _ in node_ids]
    neighbours: list[list[int]] = [[] for _ in node_ids]
    for source_id, target_id in edges:
        if source_id in place and target_id in place:
            source, target = place[source_id], place[target_id]
            successors[source].append(target)
            neighbours[source].append(target)
            neighbours[target].append(source)
    waves = _waves(successors)
    component_of = _components(neighbours)
    members = _grouped(range(len(node_ids)), component_of)
    paths: dict[int, list[int]] = {}
    if sum(len(wave) for wave in waves) < len(node_ids):
        for path in closed_paths(successors):
            paths.setdefault(component_of[path[0]], path)
    waves_of: list[list[tuple[str, ...]]] = [[] for _ in members]
    for wave in waves:
        for component, nodes in _grouped(wave, component_of).items():
            waves_of[component].append(tuple(node_ids[node] for node in nodes))
    return FlowStructure(
        tuple(
            ComponentStructure(
                component_id=str(component),
                nodes=tuple(node_ids[node] for node in nodes),
                waves=tuple(waves_of[component]),
                cycle_path=tuple(node_ids[node] for node in paths.get(component, ())),
            )
            for component, nodes in members.items()
        )
    )


def _components(neighbours: list[list[int]]) -> list[int]:
    """Return the component of each node, numbered in order of first nodes; breadth-first search."""
    component_of = [-1] * len(neighbours)
    count = 0
    for first in range(len(neighbours)):
        if component_of[first] >= 0:
            continue
        component_of[first] = count
        front = [first]
        while front:
            reached = []
            for node in front:
                for neighbour in neighbours[node]:
                    if component_of[neighbour] < 0:
                        component_of[neighbour] = count
                        reached.append(neighbour)
            front = reached
        count += 1
    return component_of


def _waves(successors: list[list[int]]) -> list[list[int]]:
    """Return the waves of nodes, each in the order of the flow; nodes on or behind a closed path are in none."""
    undecided = [0] * len(successors)
    for targets in successors:
        for target in targets:
            undecided[target] += 1
    waves = []
    wave = [node for node, count in enumerate(undecided) if not count]
    while wave:
        waves.append(wave)
        following = []
        for node in wave:
            for target in successors[node]:
                undecided[target] -= 1
                if not undecided[target]:
                    following.append(target)
        wave = sorted(following)
    return waves


def _grouped(nodes: Iterable[int], component_of: list[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for node in nodes:
        groups.setdefault(component_of[node], []).append(node)
    return groups
