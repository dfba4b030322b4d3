"""A flow as defined: what repeats, how often, and by what rules."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.component_plan import ComponentPlan, plan_component
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.handlers import Handlers
from tradewind.scheduler.domain.intervals import format_duration
from tradewind.scheduler.domain.json_text import canonical_json, joined_list, joined_object
from tradewind.scheduler.domain.node_definition import EdgeDefinition, NodeDefinition
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.domain.structure import FlowStructure, structure_of

KEEP_CYCLES = 100
"""How many ended cycles of a flow stay on record by default."""


class OverlapPolicy(StrEnum):
    """What happens when a cycle is due while another runs.

    The new cycle does not begin; it waits, alone or with others; the running cycle is stopped first; or both run.
    """

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class FlowDefinition:
    """A flow without faults: node ids are distinct, edges join existing nodes, and the graph has no closed paths.

    `cycle_timeout_ms` of None means that a cycle may take forever. `labels` are sorted by key. At most `max_running` of
    the flow's nodes run at once, 0 for no limit. The newest `keep_cycles` ended cycles stay on record, for
    `keep_for_ms`; 0 is for as long as each service keeps them. The flow pauses after `pause_after_failures` failed
    cycles in a row, 0 for never. The nodes of `on_failure` run once all others have ended, if they ended badly; those
    of `last` run last. Both are in components of their own.
    """

    schedule: ScheduleDefinition
    nodes: tuple[NodeDefinition, ...]
    edges: tuple[EdgeDefinition, ...] = ()
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    failure_policy: FailurePolicy = FailurePolicy.SKIP_DOWNSTREAM
    cycle_timeout_ms: int | None = None
    keep_cycles: int = KEEP_CYCLES
    labels: tuple[tuple[str, str], ...] = ()
    description: str = ""
    max_running: int = 0
    keep_for_ms: int = 0
    pause_after_failures: int = 0
    on_failure: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def structure(self) -> FlowStructure:
        """Return the flow's components."""
        node_ids = [node.node_id for node in self.nodes]
        return structure_of(node_ids, ((edge.source, edge.target) for edge in self.edges))

    def handlers(self) -> Handlers | None:
        """Return the components that handle the outcome of a cycle, None when there are none."""
        if not self.on_failure and not self.last:
            return None
        on_failure, last = set(self.on_failure), set(self.last)
        components = self.structure().components
        return Handlers(
            tuple(part.component_id for part in components if part.nodes[0] in on_failure),
            tuple(part.component_id for part in components if part.nodes[0] in last),
        )

    def plans(self) -> tuple[ComponentPlan, ...]:
        """Return the plan of each component, in the order of their ids. Linear time."""
        structure = self.structure()
        component_of = {node: index for index, part in enumerate(structure.components) for node in part.nodes}
        nodes: list[list[NodeDefinition]] = [[] for _ in structure.components]
        edges: list[list[EdgeDefinition]] = [[] for _ in structure.components]
        for node in self.nodes:
            nodes[component_of[node.node_id]].append(node)
        for edge in self.edges:
            edges[component_of[edge.source]].append(edge)
        return tuple(
            plan_component(part.component_id, nodes[index], edges[index], self.failure_policy, self.max_running)
            for index, part in enumerate(structure.components)
        )

    def _settings(self) -> dict[str, Any]:
        schedule = self.schedule
        weather: dict[str, Any] = (
            {"interval": format_duration(schedule.interval_ms)}
            if schedule.only_interval
            else {"schedule": schedule.to_weather()}
        )
        if self.overlap is not OverlapPolicy.SKIP:
            weather["overlap"] = self.overlap.value
        if self.failure_policy is not FailurePolicy.SKIP_DOWNSTREAM:
            weather["failure_policy"] = self.failure_policy.value
        if self.cycle_timeout_ms is not None:
            weather["timeout"] = format_duration(self.cycle_timeout_ms)
        if self.keep_cycles != KEEP_CYCLES:
            weather["keep_cycles"] = self.keep_cycles
        if self.keep_for_ms:
            weather["keep_for"] = format_duration(self.keep_for_ms)
        if self.labels:
            weather["labels"] = dict(self.labels)
        if self.description:
            weather["description"] = self.description
        if self.max_running:
            weather["max_running"] = self.max_running
        if self.pause_after_failures:
            weather["pause_after_failures"] = self.pause_after_failures
        if self.on_failure:
            weather["on_failure"] = list(self.on_failure)
        if self.last:
            weather["finally"] = list(self.last)
        return weather

    def to_json(self) -> str:
        """Return it as canonical JSON text of Weather Syntax, without fields at their defaults.

        Equal definitions give equal text, and reading that gives an equal definition.
        """
        fields = {name: canonical_json(value) for name, value in self._settings().items()}
        fields["nodes"] = joined_list(node.to_json() for node in self.nodes)
        fields["edges"] = joined_list(canonical_json(edge.to_weather()) for edge in self.edges)
        return joined_object(fields)
