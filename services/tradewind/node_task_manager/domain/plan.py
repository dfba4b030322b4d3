"""Plans: the immutable structure and configs of a component."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.fan_out import FanOut
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.server.rates import KeyRate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.node_task_manager.domain.eager import EagerSteps
    from tradewind.node_task_manager.domain.handles import Declared

SCHEDULE_TO_START_MS = 5 * 60 * 1000
START_TO_CLOSE_MS = 5 * 60 * 1000


class RunIf(StrEnum):
    """When a node runs, depending on its decided input edges."""

    ALL_SUCCEEDED = "all_succeeded"
    ANY_SUCCEEDED = "any_succeeded"
    ALL_DONE = "all_done"

    def wants(self, edges: int, live: int) -> bool:
        """Say whether a node should run once all its `edges` are decided and `live` of them are live."""
        match self:
            case RunIf.ALL_SUCCEEDED:
                return live == edges
            case RunIf.ANY_SUCCEEDED:
                return live > 0 or edges == 0
            case RunIf.ALL_DONE:
                return True


class FailurePolicy(StrEnum):
    """What happens to the rest of a component when a node fails."""

    SKIP_DOWNSTREAM = "skip_downstream"
    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"


PRIORITY_MS = 60_000
"""The waiting time that one step of priority is worth: in the end, low priority comes first, whatever arrives later."""
LOWEST_PRIORITY, HIGHEST_PRIORITY = -5, 5
ITEMS_A_MS = 4096
"""How many items of a list or a batch have places within a millisecond of the queue, as its numbers can tell apart."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node; times in milliseconds, 0 for none. Without a `retry` policy, its first failure is final.

    `priority` is -5 to 5. A node with a `wait` goes to no worker: when it is ready, it waits.
    """

    node_id: str
    node_type: str
    config_json: str = ""
    run_if: RunIf = RunIf.ALL_SUCCEEDED
    schedule_to_start_ms: int = SCHEDULE_TO_START_MS
    start_to_close_ms: int = START_TO_CLOSE_MS
    retry: RetryPolicy | None = None
    heartbeat_ms: int = 0
    total_ms: int = 0
    priority: int = 0
    concurrency: Concurrency | None = None
    rate: KeyRate | None = None
    cache: CacheUse | None = None
    fan_out: FanOut | None = None
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """An edge between nodes, named by their places in the plan."""

    source: int
    source_handle: str
    target: int
    target_handle: str


@dataclass(frozen=True)
class Plan:
    """Structure and configs of one component, known by its digest.

    At most `max_running` node tasks of its flow run at once, 0 for no limit. A part of a plan without edges holds only
    some of its nodes, from place `first` on; a whole plan has no `first`.
    """

    digest: str
    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    failure_policy: FailurePolicy = FailurePolicy.SKIP_DOWNSTREAM
    max_running: int = 0
    first: int | None = None

    def node(self, place: int) -> PlanNode:
        """Return the node at a place. Raises LookupError when it is not here."""
        at = place - (self.first or 0)
        if at < 0:
            raise LookupError(place)
        return self.nodes[at]

    def edges_into(self, place: int) -> tuple[int, ...]:
        """Return the places of the edges into a node."""
        return self.inputs[place] if self.edges else ()

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """For each node the places of the edges into it, in the order of the plan."""
        into: list[list[int]] = [[] for _ in self.nodes]
        for place, edge in enumerate(self.edges):
            into[edge.target].append(place)
        return tuple(map(tuple, into))

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """For each node the places of the edges out of it, in the order of the plan."""
        out: list[list[int]] = [[] for _ in self.nodes]
        for place, edge in enumerate(self.edges):
            out[edge.source].append(place)
        return tuple(map(tuple, out))

    def mapped_edge(self, place: int) -> int:
        """Return the place of the edge that brings a mapped node its list."""
        fan_out = self.nodes[place].fan_out
        assert fan_out is not None
        return next(at for at in self.inputs[place] if self.edges[at].target_handle == fan_out.handle)

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """Places of the nodes without input edges."""
        return tuple(place for place, into in enumerate(self.inputs) if not into)

    @cached_property
    def only_sink(self) -> int:
        """The place of the only node without output edges, -1 when there are several."""
        sinks = [place for place, out in enumerate(self.outputs) if not out]
        return sinks[0] if len(sinks) == 1 else -1

    @cached_property
    def eager_steps(self) -> "dict[tuple[int, frozenset[str]], EagerSteps]":
        """What eager.py has worked out of the plan: steps, by their start and the eager types."""
        return {}

    @cached_property
    def unknown_handles(self) -> "dict[Declared, Mapping[int, str]]":
        """What handles.py has worked out of the plan: faults, by what is declared."""
        return {}

    @cached_property
    def place(self) -> dict[str, int]:
        """The place of each node, by its id."""
        return {node.node_id: place for place, node in enumerate(self.nodes)}
