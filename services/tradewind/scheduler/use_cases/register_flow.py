"""Analyses and registers flows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.flow_analysis import FlowAnalysis, analyze
from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import FlowRecord, FlowRegistration
from tradewind.scheduler.domain.labels import MAX_LABELS, read_labels
from tradewind.scheduler.domain.weather import FlowDraft
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.peers import Caches, NodeTypes
from tradewind.scheduler.use_cases.chained_flows import chained_flows
from tradewind.scheduler.use_cases.flow_paths import PathsFound
from tradewind.scheduler.use_cases.planned_times import first_when_registered
from tradewind.scheduler.use_cases.store_definition import Author, Registered, StoreDefinition, registration_of
from tradewind.scheduler.use_cases.sub_flow_paths import sub_flow_paths
from tradewind.server.built_in import BUILT_IN
from tradewind.server.clock import Clock
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.large_work import LARGE_BYTES, in_thread_if

_TYPES_NOT_CHECKED = Violation(
    "nodes", "the registry cannot be reached, so handles and configs were not checked against live node types"
)


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """A request to register a flow: the definition as far as it could be read, further labels, and the owner.

    With `owner_only`, the flow of another user is not changed.
    """

    flow_id: str
    draft: FlowDraft
    labels: Mapping[str, str]
    user_id: str
    author: Author
    owner_only: bool = False

    def faults(self) -> list[Violation]:
        """Return the faults of the request, other than those of the definition."""
        found = FaultList()
        read_labels(self.labels, found)
        definition = self.draft.definition
        labels = dict(definition.labels if definition else ()) | dict(self.labels)
        if len(self.labels) <= MAX_LABELS < len(labels):
            found.add("labels", f"{len(labels)} with those of the definition; at most {MAX_LABELS}")
        checks = [check_identifier("flow_id", self.flow_id)]
        if self.user_id:
            checks.append(check_identifier("user_id", self.user_id))
        return [*(check for check in checks if check), *self.author.faults(), *found.violations()]


class RegisterFlow:
    """Checks definitions, by themselves and against what live workers offer, and puts good ones on record."""

    def __init__(
        self, node_types: NodeTypes, caches: Caches, flows: FlowRecords, store: StoreDefinition, clock: Clock
    ) -> None:
        self._node_types = node_types
        self._caches = caches
        self._flows = flows
        self._store = store
        self._clock = clock

    async def analyze(self, draft: FlowDraft, flow_id: str = "", user_id: str = "") -> FlowAnalysis:
        """Return the analysis of a draft, with all its faults; with `flow_id`, as the definition of that flow.

        The flow is to be the user's, or stay its owner's without a `user_id`.
        """
        declared = draft.node_types - BUILT_IN.keys()
        catalogue = await self._node_types.catalogue(declared, hints=True) if declared else None
        caches = await self._caches.cache_names() if draft.uses_caches else None
        analysis = await in_thread_if(draft.size > LARGE_BYTES, analyze, draft, catalogue, caches)
        if catalogue is None and declared:
            analysis = replace(analysis, warnings=(_TYPES_NOT_CHECKED, *analysis.warnings))
        definition = analysis.definition
        if definition is None:
            return analysis
        standing = await self._standing(flow_id)
        faults, warnings = self._past_schedule_faults(definition, standing), ()
        if standing is not None and standing.schedule == definition.schedule:
            # Registering a flow again as it is, or with another graph, must not fail because its time has passed.
            faults, warnings = (), faults
        paths = await self.paths_of(flow_id, user_id, definition) if flow_id else PathsFound()
        return replace(
            analysis,
            definition=None if faults or paths.faults else definition,
            violations=(*faults, *analysis.violations, *paths.faults),
            warnings=(*warnings, *analysis.warnings, *paths.warnings),
        )

    def _past_schedule_faults(self, definition: FlowDefinition, standing: FlowRecord | None) -> tuple[Violation, ...]:
        try:
            first_when_registered(definition, self._clock.now_ms(), standing)
        except InvalidInput as fault:
            return tuple(fault.violations)
        return ()

    async def _standing(self, flow_id: str) -> FlowRecord | None:
        (flow,) = await self._flows.find([flow_id] if flow_id else []) or [None]
        return flow

    async def paths_of(self, flow_id: str, user_id: str, definition: FlowDefinition) -> PathsFound:
        """Return what is wrong with the flows that this one is to run, or to begin after.

        Its definition is to be a user's ("" for the flow's owner).
        """
        run = await sub_flow_paths(self._flows, flow_id, user_id, definition)
        begun_by = await self.chains_of(flow_id, user_id, definition)
        return PathsFound((*run.faults, *begun_by.faults), (*run.warnings, *begun_by.warnings))

    async def chains_of(self, flow_id: str, user_id: str, definition: FlowDefinition) -> PathsFound:
        """Return what is wrong with the flows whose ends are to begin this one; its definition is as in `paths_of`."""
        return await chained_flows(self._flows, flow_id, user_id, definition.schedule)

    async def __call__(self, request: RegistrationRequest) -> Registered:
        """Register a flow, or a new revision of one.

        Raises InvalidInput with every fault of the request and the definition, and what StoreDefinition raises.
        """
        request_faults = request.faults()
        analysis = await self.analyze(request.draft, "" if request_faults else request.flow_id, request.user_id)
        if request_faults or analysis.definition is None:
            raise InvalidInput([*request_faults, *analysis.violations])
        registration = await self.registration(request, analysis.definition)
        return await self._store(registration, analysis.warnings, analysis.definition)

    async def registration(self, request: RegistrationRequest, definition: FlowDefinition) -> FlowRegistration:
        """Return what would be put on record. Raises InvalidInput when a new schedule has nothing planned."""
        labels = dict(definition.labels) | dict(request.labels)
        author, standing = request.author, await self._standing(request.flow_id)
        is_over = bool(self._past_schedule_faults(definition, standing))
        if standing is not None and is_over and not author.etag:
            # What is right for this schedule would be wrong for another that somebody registers meanwhile.
            author = replace(author, etag=standing.etag)
        registration = await in_thread_if(
            request.draft.size > LARGE_BYTES,
            registration_of,
            request.flow_id,
            definition,
            labels,
            self._clock.now_ms(),
            author,
            standing=standing,
            user_id=request.user_id,
        )
        remembered = request.author.request(request.user_id, request.flow_id, registration.digest, request.user_id)
        return replace(registration, request=remembered, owner_only=request.owner_only)
