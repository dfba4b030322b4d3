"""Says what registering a flow would do, without storing anything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tradewind.scheduler.domain.binding_limits import BindingLimit, Demand, binding_limits
from tradewind.scheduler.domain.flow_analysis import FlowAnalysis
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_diff import FlowDiff
from tradewind.scheduler.domain.flow_record import DEFAULT_USER, FlowRecord, FlowRegistration
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.placement import Placement, WorkerView, placements
from tradewind.scheduler.domain.system_limits import SystemLimits
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.planning import Limits, Workers
from tradewind.scheduler.use_cases.faults import etag_conflict, flow_deleting
from tradewind.scheduler.use_cases.planned_times import planned_times, times_from
from tradewind.scheduler.use_cases.read_revisions import LARGEST_DIFF_BYTES, diff_of_texts
from tradewind.scheduler.use_cases.register_flow import RegisterFlow, RegistrationRequest
from tradewind.scheduler.use_cases.similar_flows import no_such_flow
from tradewind.server.clock import Clock
from tradewind.server.faults import Violation
from tradewind.server.large_work import LARGE_BYTES, in_thread_if
from tradewind.server.quoting import quoted

_NEXT_TIMES = 5
_TIMES_SAMPLED = 100
"""How many planned times are used to judge how often cycles begin."""

_NO_WORKERS_KNOWN = Violation("nodes", "the registry cannot be reached, so it is not known where nodes could run")
_NO_LIMITS_KNOWN = Violation("flow", "the node task manager cannot be reached, so the system's limits were not checked")


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """The effect that a registration would have; with faults in `analysis`, as much of it as can be made out.

    `standing` is the flow on record, None for a new flow; `changed` says whether there would be a new revision. Without
    a `diff`, the flow is new, or the diff is too large for an answer, which a warning says.
    """

    analysis: FlowAnalysis
    standing: FlowRecord | None = None
    changed: bool = False
    diff: FlowDiff | None = None
    placements: tuple[Placement, ...] = ()
    limits: tuple[BindingLimit, ...] = ()
    next_times_ms: tuple[int, ...] = ()


class PlanFlow:
    """Judges a request as RegisterFlow does, and finds which workers could run the flow and what would hold it back."""

    def __init__(
        self, register: RegisterFlow, flows: FlowRecords, workers: Workers, limits: Limits, clock: Clock
    ) -> None:
        self._register = register
        self._flows = flows
        self._workers = workers
        self._limits = limits
        self._clock = clock

    async def __call__(self, request: RegistrationRequest) -> FlowPlan:
        """Return what the registration would do. Faults are part of the plan.

        Raises what RegisterFlow raises because of the flow on record, and InvalidInput if the last planned time passes
        meanwhile.
        """
        request_faults = request.faults()
        if request_faults:
            analysis = await self._register.analyze(request.draft)
            return FlowPlan(replace(analysis, violations=(*request_faults, *analysis.violations), definition=None))
        analysis = await self._register.analyze(request.draft, request.flow_id, request.user_id)
        standing = await self._standing(request)
        if analysis.definition is None:
            return FlowPlan(analysis, standing)
        registration = await self._register.registration(request, analysis.definition)
        return await self._planned(request, analysis, analysis.definition, registration, standing)

    async def _standing(self, request: RegistrationRequest) -> FlowRecord | None:
        (flow,) = await self._flows.find([request.flow_id])
        if flow is not None and flow.status is FlowStatus.DELETING:
            raise flow_deleting(request.flow_id)
        etag = request.author.etag
        if etag and flow is None:
            raise await no_such_flow(self._flows, request.flow_id)
        if etag and flow is not None and flow.etag != etag:
            raise etag_conflict(flow)
        return flow

    async def _planned(
        self,
        request: RegistrationRequest,
        analysis: FlowAnalysis,
        definition: FlowDefinition,
        registration: FlowRegistration,
        standing: FlowRecord | None,
    ) -> FlowPlan:
        user_id = request.user_id or (standing.user_id if standing else DEFAULT_USER)
        workers = await self._workers.offering({node.node_type for node in definition.nodes})
        limits = await self._limits.limits_for(user_id)
        times = tuple(islice(self._times(registration, standing), _TIMES_SAMPLED))
        large = request.draft.size > LARGE_BYTES
        return await in_thread_if(
            large, _plan_of, analysis, definition, registration, standing, user_id, workers, limits, times
        )

    def _times(self, registration: FlowRegistration, standing: FlowRecord | None) -> Iterator[int]:
        now_ms = self._clock.now_ms()
        if standing is None:
            return times_from(registration.schedule, now_ms)
        next_ms = standing.next_execution_ms
        if standing.status is FlowStatus.RUNNING and standing.schedule != registration.schedule:
            next_ms = registration.planned_next(next_ms, now_ms)
        return planned_times(replace(standing, schedule=registration.schedule, next_execution_ms=next_ms), now_ms)


def _plan_of(
    analysis: FlowAnalysis,
    definition: FlowDefinition,
    registration: FlowRegistration,
    standing: FlowRecord | None,
    user_id: str,
    workers: Sequence[WorkerView] | None,
    limits: SystemLimits | None,
    times: Sequence[int],
) -> FlowPlan:
    warnings = [_NO_WORKERS_KNOWN] if workers is None else []
    warnings += [_NO_LIMITS_KNOWN] if limits is None else []
    offers = placements(definition.nodes, workers) if workers is not None else ()
    warnings += [_all_draining(offer) for offer in offers if offer.draining and not offer.worker_ids]
    diff = _diff(registration, standing) if standing else None
    if standing and diff and diff.size > LARGEST_DIFF_BYTES:
        warnings.append(_diff_omitted(standing))
        diff = None
    demand = Demand(definition, analysis.structure)
    return FlowPlan(
        replace(analysis, warnings=(*analysis.warnings, *warnings)),
        standing,
        standing is None or (standing.digest, standing.user_id) != (registration.digest, user_id),
        diff,
        offers,
        binding_limits(definition, demand, limits or SystemLimits(), offers, times),
        tuple(times[:_NEXT_TIMES]),
    )


def _all_draining(offer: Placement) -> Violation:
    workers = f"every live worker that offers node type {quoted(offer.node_type)}"
    return Violation("nodes", f"{workers} is draining, so its nodes wait for another worker")


def _diff(registration: FlowRegistration, standing: FlowRecord) -> FlowDiff:
    before, after = dict(standing.labels), dict(registration.labels)
    return diff_of_texts(standing.config_json, before, registration.config_json, after)


def _diff_omitted(standing: FlowRecord) -> Violation:
    changes = f"the changes from revision {standing.revision}"
    return Violation(
        "flow", f"{changes} take more than 3 MiB, so the plan leaves them out; get that revision to compare"
    )
