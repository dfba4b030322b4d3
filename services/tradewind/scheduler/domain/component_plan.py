"""The plan of a component: all that the node task manager needs to run it, the same for every cycle."""

from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.json_text import canonical_json, digest_of
from tradewind.scheduler.domain.node_definition import EdgeDefinition, NodeDefinition

_NODE_BYTES, _EDGE_BYTES = 200, 100


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """An edge of a plan; `source` and `target` are indexes into its `nodes`, from 0."""

    source: int
    source_handle: str
    target: int
    target_handle: str


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """The nodes and edges of one component, in the order of the flow: gathered values arrive in the order of the edges.

    `digest` covers all but `component_id`, so that equal components of several flows share one plan.
    """

    component_id: str
    nodes: tuple[NodeDefinition, ...]
    edges: tuple[PlanEdge, ...]
    failure_policy: FailurePolicy
    digest: str
    max_running: int = 0

    @property
    def size(self) -> int:
        """Roughly how many bytes its body takes in a message."""
        return sum(len(node.config_json) + _NODE_BYTES for node in self.nodes) + len(self.edges) * _EDGE_BYTES


def plan_component(
    component_id: str,
    nodes: Sequence[NodeDefinition],
    edges: Sequence[EdgeDefinition],
    failure_policy: FailurePolicy,
    max_running: int,
) -> ComponentPlan:
    """Return the plan of a component with these nodes and these edges between them."""
    place = {node.node_id: index for index, node in enumerate(nodes)}
    plan_edges = tuple(
        PlanEdge(place[edge.source], edge.source_handle, place[edge.target], edge.target_handle) for edge in edges
    )
    return ComponentPlan(
        component_id,
        tuple(nodes),
        plan_edges,
        failure_policy,
        _digest(nodes, plan_edges, failure_policy, max_running),
        max_running,
    )


def _digest(
    nodes: Sequence[NodeDefinition], edges: Sequence[PlanEdge], failure_policy: FailurePolicy, max_running: int
) -> str:
    content = {
        "nodes": [
            [
                *(n.node_id, n.node_type, n.config_json, n.run_if.value, n.schedule_to_start_ms, n.start_to_close_ms),
                # Settings that a node does not use leave no trace, so that its plan keeps the digest already known.
                *((n.priority,) if n.priority else ()),
                *([n.retry.to_weather()] if n.retry is not None else ()),
                *([n.concurrency.to_weather()] if n.concurrency is not None else ()),
                *([n.rate.to_weather()] if n.rate is not None else ()),
                *([{"cache": n.cache.to_weather()}] if n.cache is not None else ()),
                *([n.further_timeouts] if n.further_timeouts else ()),
                *([n.fan_out.to_weather()] if n.fan_out is not None else ()),
            ]
            for n in nodes
        ],
        "edges": [[e.source, e.source_handle, e.target, e.target_handle] for e in edges],
        "failure_policy": failure_policy.value,
        **({"max_running": max_running} if max_running else {}),
    }
    return digest_of(canonical_json(content))
