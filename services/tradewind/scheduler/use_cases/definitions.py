"""Definitions of flows, parsed once and kept in memory by flow and revision."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tradewind.scheduler.domain.beginning import CycleShape
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.weather import definition_from_json
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.server.built_in import FLOW

_NODE_BYTES = 200
_EDGE_BYTES = 100
_INPUT_BYTES = 2048
"""How many bytes of inputs weigh as much as one node: 1 MiB weighs as much as the 500 nodes of a batch."""

MAX_NODES = 500_000
"""How many nodes the definitions kept in memory may have in all."""

_DIGEST = 12
"""How many characters of its digest tell a registration from others of its flow."""
_Key = tuple[str, int, str]
"""The id of a flow, and the number and digest of a revision."""


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """One revision of a flow, ready to run. `components` pairs component ids with the digests of their plans.

    `entry_types` are the node types of its entry nodes.
    """

    shape: CycleShape
    components: tuple[tuple[str, str], ...]
    plans: Mapping[str, ComponentPlan]
    sinks: tuple[str, ...]
    entry_types: frozenset[str]

    @property
    def weight(self) -> int:
        """The number of nodes in a run."""
        return len(self.shape.node_ids)

    def plan_size(self, digest: str) -> int:
        """Return roughly how many bytes the body of a plan takes in a message."""
        plan = self.plans[digest]
        return sum(len(node.config_json) + _NODE_BYTES for node in plan.nodes) + len(plan.edges) * _EDGE_BYTES


class PlannedRun(NamedTuple):
    """A run and the revision of the flow that it runs."""

    state: ChainState
    planned: PlannedFlow

    @property
    def weight(self) -> int:
        """How much of a batch the run takes up, in nodes."""
        return self.planned.weight + len(self.state.facts.inputs_json) // _INPUT_BYTES


def planned_flow(flow_id: str, user_id: str, revision: int, digest: str, definition: FlowDefinition) -> PlannedFlow:
    """Return a revision of a flow, ready to run; `digest` is as in CycleShape."""
    plans = definition.plans()
    sources = {edge.source for edge in definition.edges}
    targets = {edge.target for edge in definition.edges}
    shape = CycleShape(
        flow_id=flow_id,
        user_id=user_id,
        revision=revision,
        node_ids=tuple(node.node_id for node in definition.nodes),
        component_count=len(plans),
        failure_policy=definition.failure_policy,
        timeout_ms=definition.cycle_timeout_ms or 0,
        keep_cycles=definition.keep_cycles,
        schedule=definition.schedule,
        keep_for_ms=definition.keep_for_ms,
        handlers=definition.handlers(),
        digest=digest,
        runs_flows=any(node.node_type == FLOW.name for node in definition.nodes),
    )
    return PlannedFlow(
        shape,
        tuple((plan.component_id, plan.digest) for plan in plans),
        {plan.digest: plan for plan in plans},
        tuple(node.node_id for node in definition.nodes if node.node_id not in sources),
        frozenset(node.node_type for node in definition.nodes if node.node_id not in targets),
    )


class Definitions:
    """Provides planned flows. The current revision of a flow is a guess, which is checked when a cycle begins."""

    def __init__(self, flows: FlowRecords, max_nodes: int = MAX_NODES) -> None:
        self._flows = flows
        self._max_nodes = max_nodes
        self._nodes = 0
        self._known: OrderedDict[_Key, PlannedFlow] = OrderedDict()
        self._current: dict[str, PlannedFlow] = {}

    def current(self, flow_id: str) -> PlannedFlow | None:
        """Return the current revision as far as it is known here, None when it is not known."""
        planned = self._current.get(flow_id)
        if planned is not None:
            self._touch((flow_id, planned.shape.revision, planned.shape.digest))
        return planned

    async def load(self, flow_ids: Sequence[str]) -> None:
        """Learn the current revisions of flows; a flow that is not on record is forgotten."""
        for flow_id, record in zip(flow_ids, await self._flows.find(flow_ids), strict=True):
            if record is None:
                self._current.pop(flow_id, None)
            else:
                self.set_current(record)

    def set_current(self, record: FlowRecord, definition: FlowDefinition | None = None) -> PlannedFlow:
        """Take the definition in a record as the current one; it need not be read if it is given as well."""
        key = (record.flow_id, record.revision, record.digest[:_DIGEST])
        planned = self._touch(key)
        if planned is None or planned.shape.user_id != record.user_id:
            planned = self._cache(key, record.user_id, record.config_json, definition)
        self._current[record.flow_id] = planned
        return planned

    async def of_run(self, run: ChainState) -> PlannedFlow | None:
        """Return the revision that a run began with, None when it is no longer on record."""
        flow_id, facts = run.name.flow_id, run.facts
        key = (flow_id, facts.revision, facts.digest)
        known = self._touch(key)
        if known is not None:
            return known
        text = await self._flows.definition(flow_id, facts.revision)
        return None if text is None else self._cache(key, facts.user_id, text)

    def forget(self, flow_id: str) -> None:
        """Forget which revision of a flow is current."""
        self._current.pop(flow_id, None)

    def _touch(self, key: _Key) -> PlannedFlow | None:
        planned = self._known.get(key)
        if planned is not None:
            self._known.move_to_end(key)
        return planned

    def _cache(
        self, key: _Key, user_id: str, config_json: str, definition: FlowDefinition | None = None
    ) -> PlannedFlow:
        flow_id, revision, digest = key
        planned = planned_flow(flow_id, user_id, revision, digest, definition or definition_from_json(config_json))
        before = self._known.pop(key, None)
        self._nodes += planned.weight - (before.weight if before else 0)
        self._known[key] = planned
        while self._nodes > self._max_nodes and len(self._known) > 1:
            (flow_id, *_), oldest = self._known.popitem(last=False)
            self._nodes -= oldest.weight
            if self._current.get(flow_id) is oldest:
                del self._current[flow_id]
        return planned
