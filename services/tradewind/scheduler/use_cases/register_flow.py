"""Analyses and registers flows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.flow_analysis import FlowAnalysis, analyze
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import (
    FlowRecord,
    FlowRegistration,
    RegisterOutcome,
    RememberedRequest,
)
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.json_text import canonical_json, digest_of
from tradewind.scheduler.domain.labels import MOST_LABELS, read_labels
from tradewind.scheduler.domain.weather import FlowDraft
from tradewind.scheduler.ports import Caches, FlowRecords, NodeTypes
from tradewind.scheduler.use_cases.change_flow import ChangeFlow
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.faults import flow_deleting, flow_not_found, request_id_reused
from tradewind.server.clock import Clock
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier

_NOBODY_ASKED = Violation(
    "nodes", "the registry cannot be reached: handles and configs were not checked against live node types"
)


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered flow; `changed` is False when the same definition was there already."""

    flow: FlowRecord
    changed: bool
    warnings: tuple[Violation, ...]


class RegisterFlow:
    """Judges definitions by themselves and by what live workers offer, and puts good ones on record."""

    def __init__(
        self,
        flows: FlowRecords,
        node_types: NodeTypes,
        caches: Caches,
        definitions: Definitions,
        change_flow: ChangeFlow,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._flows = flows
        self._node_types = node_types
        self._caches = caches
        self._definitions = definitions
        self._change_flow = change_flow

    async def analyze(self, draft: FlowDraft) -> FlowAnalysis:
        """Return what a draft amounts to, every fault of it as data."""
        catalogue = await self._node_types.catalogue(draft.node_types) if draft.node_types else None
        caches = await self._caches.known() if draft.uses_caches else None
        analysis = analyze(draft, catalogue, caches)
        if catalogue is None and draft.node_types:
            return replace(analysis, warnings=(_NOBODY_ASKED, *analysis.warnings))
        return analysis

    async def __call__(
        self, flow_id: str, draft: FlowDraft, labels: Mapping[str, str], user_id: str, request_id: str
    ) -> Registered:
        """Register a flow, or a new revision of one.

        Raises InvalidInput with every fault of the request and the definition, FailedPrecondition for a flow that is
        being deleted, Conflict for a request_id that was used for something else.
        """
        own = _own_faults(flow_id, draft, labels, user_id, request_id)
        analysis = await self.analyze(draft)
        if own or analysis.definition is None:
            raise InvalidInput([*own, *analysis.violations])
        first_ms = _first_planned(analysis.definition, self._clock.now_ms())
        registration = _registration(flow_id, analysis, analysis.definition, labels, user_id, request_id, first_ms)
        outcome, _ = await self._flows.register(registration)
        if outcome is RegisterOutcome.DELETING:
            raise flow_deleting(flow_id)
        if outcome is RegisterOutcome.REUSED:
            raise request_id_reused(request_id)
        changed = outcome in (RegisterOutcome.CREATED, RegisterOutcome.CHANGED)
        (flow,) = await self._flows.find([flow_id])
        if flow is None:
            raise flow_not_found(flow_id)
        self._definitions.learn(flow)
        if changed and flow.status is FlowStatus.RUNNING:
            flow = await self._change_flow.settled(flow_id)
        return Registered(flow, changed, analysis.warnings)


def _first_planned(definition: FlowDefinition, now_ms: int) -> int:
    """Return what a schedule with a grid of its own plans next, 0 for one that begins with the flow.

    Raises InvalidInput when it plans nothing any more.
    """
    if definition.schedule.begins_with_the_flow:
        return 0
    first_ms = definition.schedule.planned(0).after(now_ms - 1)
    if first_ms is None:
        raise InvalidInput([Violation("schedule", "plans nothing any more: all its times have passed")])
    return first_ms


def _own_faults(
    flow_id: str, draft: FlowDraft, labels: Mapping[str, str], user_id: str, request_id: str
) -> list[Violation]:
    """Return what is wrong with the request besides its definition."""
    faults = FaultList()
    read_labels(labels, "labels", faults)
    given = {key for key, _ in draft.definition.labels} if draft.definition else set()
    if len(labels) <= MOST_LABELS < len(given | set(labels)):
        faults.add("labels", f"{len(given | set(labels))} with those of the definition; at most {MOST_LABELS}")
    checks = [check_identifier("flow_id", flow_id)]
    checks += [check_identifier("user_id", user_id)] if user_id else []
    return [*(check for check in checks if check), *request_faults(request_id), *faults.violations()]


def request_faults(request_id: str) -> list[Violation]:
    """Return what is wrong with a request_id."""
    if len(request_id) > 128:
        return [Violation("request_id", f"must have at most 128 characters, has {len(request_id)}")]
    if not request_id.isprintable() or " " in request_id:
        return [Violation("request_id", "must hold printable characters only, and no spaces")]
    return []


def _registration(
    flow_id: str,
    analysis: FlowAnalysis,
    definition: FlowDefinition,
    labels: Mapping[str, str],
    user_id: str,
    request_id: str,
    first_ms: int,
) -> FlowRegistration:
    config_json = definition.to_json()
    merged = dict(definition.labels) | dict(labels)
    digest = digest_of(canonical_json([config_json, sorted(merged.items())]))
    request = None
    if request_id:
        payload = digest_of(canonical_json([flow_id, digest, user_id]))
        request = RememberedRequest(user_id or "default", request_id, payload)
    return FlowRegistration(
        flow_id=flow_id,
        user_id=user_id,
        config_json=config_json,
        structure_json=canonical_json(analysis.structure.to_dict()),
        labels=tuple(sorted(merged.items())),
        digest=digest,
        schedule=definition.schedule,
        first_ms=first_ms,
        pause_after_failures=definition.pause_after_failures,
        overlap=definition.overlap,
        keep_cycles=definition.keep_cycles,
        request=request,
    )
