"""Definitions of flows, parsed once and kept in memory by flow and revision."""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from tradewind.scheduler.domain.beginning import CycleShape
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.weather import definition_from_json
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.find_readable import find_readable
from tradewind.server.built_in import FLOW
from tradewind.server.faults import Unreadable
from tradewind.server.large_work import LARGE_BYTES, in_thread_if
from tradewind.server.reading import reading

_INPUT_BYTES = 2048
"""How many bytes of inputs weigh as much as one node: 1 MiB weighs as much as the 500 nodes of a batch."""

NODES_AT_ONCE = 500
"""The most nodes of a batch that is submitted, unless it is a single run."""
_LARGE_PLANS = 256 * 1024

MAX_NODES = 500_000
"""How many nodes the definitions kept in memory may have in all."""

_DIGEST = 12
"""How many characters of its digest tell a registration from others of its flow."""
_Key = tuple[str, int, str]
"""The id of a flow, and the number and digest of a revision."""


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """One revision of a flow, ready to run. `components` pairs component ids with the digests of their plans.

    `entry_types` are the node types of its entry nodes, `weight` is the number of nodes in a run. Runs of a `large` one
    are submitted beside those of other flows, because storing its plans takes long.
    """

    shape: CycleShape
    components: tuple[tuple[str, str], ...]
    plans: Mapping[str, ComponentPlan]
    sinks: tuple[str, ...]
    entry_types: frozenset[str]
    weight: int
    large: bool


class PlannedRun(msgspec.Struct, frozen=True, gc=False):
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
        len(definition.nodes),
        len(definition.nodes) > NODES_AT_ONCE or sum(plan.size for plan in plans) > _LARGE_PLANS,
    )


Loaded: TypeAlias = PlannedFlow | Unreadable | None
"""A flow's current revision; why there is none if its record cannot be read, None if there is no record."""


class _Current(NamedTuple):
    """The revision of a flow that was current when the record was read; `reading` numbers the readings of records."""

    planned: PlannedFlow
    reading: int


class Definitions:
    """Provides planned flows. The current revision of a flow is a guess, which is checked when a cycle begins.

    Large definitions are parsed in a thread. Meanwhile others may read the same flow, so what was read later stays; and
    a revision that several ask for is parsed once.
    """

    def __init__(self, flows: FlowRecords, max_nodes: int = MAX_NODES) -> None:
        self._flows = flows
        self._max_nodes = max_nodes
        self._nodes = 0
        self._known: OrderedDict[_Key, PlannedFlow] = OrderedDict()
        self._current: dict[str, _Current] = {}
        self._readings = itertools.count()
        self._parsing: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._long: set[str] = set()
        """Flows whose definitions take long, and are being parsed or will be next."""

    def current(self, flow_id: str) -> PlannedFlow | None:
        """Return the current revision as far as it is known here, None when it is not known."""
        current = self._current.get(flow_id)
        if current is None:
            return None
        planned = current.planned
        self._touch((flow_id, planned.shape.revision, planned.shape.digest))
        return planned

    async def load(self, flow_ids: Sequence[str], *, large: bool = True) -> Mapping[str, Loaded]:
        """Learn and return the current revisions of flows, None for a flow that is not on record.

        Those that take long to parse come last; without `large`, they are left out.
        """
        if not large:
            flow_ids = [each for each in flow_ids if each not in self._long]
        records, unreadable = await find_readable(self._flows, flow_ids)
        found: dict[str, Loaded] = dict(unreadable)
        long: list[tuple[FlowRecord, int]] = []
        for flow_id, record in records.items():
            if record is None:
                self._current.pop(flow_id, None)
                found[flow_id] = None
            elif _is_large(record.config_json) and not self._is_known(record):
                long.append((record, next(self._readings)))
            else:
                found[flow_id] = await self._learned(record)
        if not large:
            return found
        self._long.update(record.flow_id for record, _ in long)
        try:
            for record, at in long:
                found[record.flow_id] = await self._learned(record, at)
                self._long.discard(record.flow_id)
        finally:
            self._long.difference_update(record.flow_id for record, _ in long)
        return found

    async def _learned(self, record: FlowRecord, reading: int | None = None) -> PlannedFlow | Unreadable:
        try:
            return await self.learn(record, reading=reading)
        except Unreadable as error:
            return error

    async def learn(
        self, record: FlowRecord, definition: FlowDefinition | None = None, *, reading: int | None = None
    ) -> PlannedFlow:
        """Take the definition in a record as the current one; it need not be parsed if it is given as well.

        The record was just read, unless `reading` says when. Raises Unreadable.
        """
        reading = next(self._readings) if reading is None else reading
        planned = await self._planned(_key(record), record.user_id, record.config_json, definition)
        current = self._current.get(record.flow_id)
        if current is None or current.reading < reading:
            self._current[record.flow_id] = _Current(planned, reading)
        return planned

    async def of_run(self, run: ChainState) -> PlannedFlow | None:
        """Return the revision that a run began with, None when it is no longer on record. Raises Unreadable."""
        flow_id, facts = run.name.flow_id, run.facts
        key = (flow_id, facts.revision, facts.digest)
        known = self._touch(key)
        if known is not None:
            return known
        text = await self._flows.definition(flow_id, facts.revision)
        return None if text is None else await self._planned(key, facts.user_id, text)

    def forget(self, flow_id: str) -> None:
        """Forget which revision of a flow is current."""
        self._current.pop(flow_id, None)

    def _is_known(self, record: FlowRecord) -> bool:
        planned = self._known.get(_key(record))
        return planned is not None and planned.shape.user_id == record.user_id

    def _touch(self, key: _Key) -> PlannedFlow | None:
        planned = self._known.get(key)
        if planned is not None:
            self._known.move_to_end(key)
        return planned

    async def _planned(
        self, key: _Key, user_id: str, config_json: str, definition: FlowDefinition | None = None
    ) -> PlannedFlow:
        async with self._parsing.setdefault(key, asyncio.Lock()):
            planned = self._touch(key)
            if planned is None or planned.shape.user_id != user_id:
                planned = await in_thread_if(_is_large(config_json), _parsed, key, user_id, config_json, definition)
                self._keep(key, planned)
            return planned

    def _keep(self, key: _Key, planned: PlannedFlow) -> None:
        before = self._known.pop(key, None)
        self._nodes += planned.weight - (before.weight if before else 0)
        self._known[key] = planned
        while self._nodes > self._max_nodes and len(self._known) > 1:
            (flow_id, *_), oldest = self._known.popitem(last=False)
            self._nodes -= oldest.weight
            current = self._current.get(flow_id)
            if current is not None and current.planned is oldest:
                del self._current[flow_id]


def _key(record: FlowRecord) -> _Key:
    return record.flow_id, record.revision, record.digest[:_DIGEST]


def _is_large(config_json: str) -> bool:
    return len(config_json) > LARGE_BYTES


def _parsed(key: _Key, user_id: str, config_json: str, definition: FlowDefinition | None) -> PlannedFlow:
    flow_id, revision, digest = key
    with reading(f"flow:{flow_id}, revision {revision}"):
        return planned_flow(flow_id, user_id, revision, digest, definition or definition_from_json(config_json))
