"""Which node tasks a worker may begin by itself, once it has run another."""

from collections.abc import Iterator
from dataclasses import dataclass

from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.server.sizes import size_of

MAX_STEPS = 64
MAX_BYTES = 64 * 1024
_STEP_BYTES = 100


@dataclass(frozen=True, slots=True)
class EagerStep:
    """A node that may begin when node `after` has emitted `handle`; the value goes to its `input_handle`."""

    after: str
    handle: str
    node: PlanNode
    input_handle: str

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        node = self.node
        texts = (self.after, self.handle, node.node_id, node.node_type, node.config_json, self.input_handle)
        return _STEP_BYTES + sum(map(size_of, texts))


@dataclass(frozen=True, eq=False, slots=True)
class EagerSteps:
    """Steps worked out once for all runs of a plan; the same steps are always the same object."""

    steps: tuple[EagerStep, ...]
    size: int


NONE = EagerSteps((), 0)


def eager_steps(plan: Plan, start: int, eager_types: frozenset[str]) -> EagerSteps:
    """Return the steps that may follow the node at place `start`, nearest first: at most 64, of 64 KiB in all.

    They are nodes of `eager_types` that have a single input edge and are under no limit. A worker goes on with one
    node at a time, so only the first of several nodes that get the same value is included.
    """
    key = (start, eager_types)
    known = plan.eager_steps.get(key)
    if known is None:
        found = tuple(_found(plan, start, eager_types))
        known = plan.eager_steps[key] = EagerSteps(found, sum(step.size for step in found)) if found else NONE
    return known


def _found(plan: Plan, start: int, eager_types: frozenset[str]) -> Iterator[EagerStep]:
    if not plan.edges or plan.max_running or plan.node(start).fan_out is not None:
        return
    waiting, steps, size = [start], 0, 0
    for place in waiting:
        used_handles: set[str] = set()
        for edge in map(plan.edges.__getitem__, plan.outputs[place]):
            node = plan.nodes[edge.target]
            free = node.node_type in eager_types and _is_free(node) and len(plan.inputs[edge.target]) == 1
            if not free or edge.source_handle in used_handles:
                continue
            step = EagerStep(plan.nodes[place].node_id, edge.source_handle, node, edge.target_handle)
            steps, size = steps + 1, size + step.size
            if steps > MAX_STEPS or size > MAX_BYTES:
                return
            yield step
            used_handles.add(edge.source_handle)
            waiting.append(edge.target)


def _is_free(node: PlanNode) -> bool:
    """Say whether a node needs nothing but its input to run."""
    return not (node.cache or node.fan_out or node.wait or node.concurrency or node.rate)
