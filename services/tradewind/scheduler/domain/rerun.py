"""Reruns: which nodes of a run keep their results, and which run again."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tradewind.scheduler.domain.component_plan import ComponentPlan, PlanEdge
from tradewind.scheduler.domain.node_definition import RunIf
from tradewind.scheduler.domain.node_status import NodeStatus, is_terminal


@dataclass(frozen=True, slots=True)
class Rerun:
    """What makes a run a rerun: the previous run, by number and run_id, and the nodes that keep its results.

    `kept` pairs component ids with indexes of nodes in their plans, in order. `from_nodes` are the nodes that the
    caller named to begin at.
    """

    source: int
    source_id: str
    kept: tuple[tuple[str, tuple[int, ...]], ...]
    from_nodes: tuple[str, ...] = ()
    by: str = ""
    reason: str = ""

    @property
    def kept_count(self) -> int:
        """How many nodes keep their results."""
        return sum(len(places) for _, places in self.kept)


class NodeResult(NamedTuple):
    """The result of a node in the previous run; `emitted` are the handles of its outputs."""

    status: NodeStatus
    emitted: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Division:
    """The nodes of a component by what a rerun does with them, as indexes into its plan.

    They keep their results, run again, or have results that are no longer on record; the rest are skipped as before.
    """

    kept: tuple[int, ...]
    again: tuple[int, ...]
    expired: tuple[int, ...]


def divide(plan: ComponentPlan, results: Mapping[str, NodeResult], begin_at: Collection[str]) -> Division:
    """Divide the nodes of a component: nodes without a good result, `begin_at` and all nodes downstream run again.

    A node that a branch skipped is skipped again unless a node that it waits for runs again. Linear time.
    """
    incoming: list[list[PlanEdge]] = [[] for _ in plan.nodes]
    for edge in plan.edges:
        incoming[edge.target].append(edge)
    kept: list[int] = []
    again: set[int] = set()
    expired: list[int] = []
    for place in _topological_order(plan):
        node = plan.nodes[place]
        result = results.get(node.node_id)
        if node.node_id in begin_at or any(edge.source in again for edge in incoming[place]):
            again.add(place)
        elif result is None or not is_terminal(result.status):
            expired.append(place)
        elif result.status is NodeStatus.COMPLETED:
            kept.append(place)
        elif result.status is not NodeStatus.SKIPPED or _would_run(node.run_if, incoming[place], plan, results):
            again.add(place)
    return Division(tuple(sorted(kept)), tuple(sorted(again)), tuple(expired))


def _would_run(
    run_if: RunIf, incoming: Collection[PlanEdge], plan: ComponentPlan, results: Mapping[str, NodeResult]
) -> bool:
    """Say whether a node would run on the signals of its sources, none of which runs again."""
    live = sum(
        result.status is NodeStatus.COMPLETED and edge.source_handle in result.emitted
        for edge in incoming
        if (result := results.get(plan.nodes[edge.source].node_id)) is not None
    )
    match run_if:
        case RunIf.ALL_SUCCEEDED:
            return live == len(incoming)
        case RunIf.ANY_SUCCEEDED:
            return live > 0 or not incoming
        case RunIf.ALL_DONE:
            return True


def _topological_order(plan: ComponentPlan) -> Iterator[int]:
    """Yield the indexes of the nodes in topological order."""
    waiting = [0] * len(plan.nodes)
    successors: list[list[int]] = [[] for _ in plan.nodes]
    for edge in plan.edges:
        waiting[edge.target] += 1
        successors[edge.source].append(edge.target)
    ready = [place for place, count in enumerate(waiting) if not count]
    for place in ready:
        yield place
        for target in successors[place]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
