"""Begins cycles of many flows at once, in few script calls whatever their partitions."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tradewind.scheduler.domain.backfill import BackfillStep
from tradewind.scheduler.domain.beginning import (
    BeginAnswer,
    BeginOutcome,
    BeginRequest,
    CycleShape,
    EventFiring,
    RerunRequest,
)
from tradewind.scheduler.domain.chain_state import ChainState, CycleOrigin
from tradewind.scheduler.domain.due import DueEvent
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition
from tradewind.scheduler.metrics import RERUN, count_begun, count_rerun
from tradewind.scheduler.ports.cycles import CycleRecords
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.begun_numbers import BegunNumbers
from tradewind.scheduler.use_cases.definitions import Definitions, Loaded, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.faults import Unreadable
from tradewind.server.identifiers import new_run_ids, run_id_of
from tradewind.server.reading import UnreadableLog
from tradewind.server.schedules.grids import UnknownZone
from tradewind.server.schedules.schedule import Verdict
from tradewind.server.schedules.unknown_zones import log_unknown_zone

_REVISIONS_TRIED = 5


class CycleRequest(msgspec.Struct, frozen=True, gc=False):
    """A request for a cycle; the fields are as in BeginRequest. `traceparent` is the caller's.

    BeginCycles judges by the flow's schedule what to do about a time or event that was found due at `now_ms`.
    """

    flow_id: str
    origin: CycleOrigin = CycleOrigin.RUN_FLOW
    planned_ms: int = 0
    due_ms: int = 0
    now_ms: int = 0
    ahead: bool = False
    queued: bool = False
    schedule_epoch: int = 0
    inputs_json: str = ""
    request: RememberedRequest | None = None
    traceparent: str = ""
    run_id: str = ""
    replaces: int = -1
    at_least: int = 0
    backfill: BackfillStep | None = None
    parent: Parent | None = None
    event: DueEvent | None = None


class BeginResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request; `planned` is set if the flow exists."""

    answer: BeginAnswer
    planned: PlannedFlow | None = None

    @property
    def run(self) -> PlannedRun | None:
        """The run to hand over; None when no cycle has begun."""
        state = self.answer.state
        return None if state is None or self.planned is None else PlannedRun(state, self.planned)


_NOT_FOUND = BeginResult(BeginAnswer(BeginOutcome.NOT_FOUND))
_NOT_PARSED = BeginResult(BeginAnswer(BeginOutcome.REVISION_CHANGED))
_UNKNOWN_ZONE = BeginResult(BeginAnswer(BeginOutcome.UNKNOWN_ZONE))
_UNREADABLE = BeginResult(BeginAnswer(BeginOutcome.UNREADABLE))


class BeginCycles:
    """Begins cycles; after `check_in_ms`, the owner that `wake` wakes looks after a run if nothing is heard of it."""

    def __init__(
        self,
        cycles: CycleRecords,
        definitions: Definitions,
        open_states: OpenStates,
        numbers: BegunNumbers,
        traces: TraceRuns,
        wake: WakeOwner,
        check_in_ms: int,
    ) -> None:
        self._cycles = cycles
        self._definitions = definitions
        self._open_states = open_states
        self._numbers = numbers
        self._traces = traces
        self._wake = wake
        self._check_in_ms = check_in_ms
        self._unreadable = UnreadableLog(__name__)

    async def __call__(
        self, requests: Sequence[CycleRequest], epochs: Epochs = NOT_OWNER, *, wait: bool = True
    ) -> list[BeginResult]:
        """Begin cycles, each judged by itself; return the answers in the order of the requests.

        With `epochs` the caller acts as the owner of the partitions. Requests for one flow keep their order; those for
        different flows do not depend on each other. Without `wait`, requests are answered `revision_changed` whose
        flows have definitions that take long to parse, so that the others do not wait for that.
        """
        results = [_NOT_FOUND] * len(requests)
        places: Sequence[int] = range(len(requests))
        for attempt in range(_REVISIONS_TRIED):
            flow_ids = {requests[place].flow_id for place in places}
            definitions = await self._definitions_of(flow_ids, anew=attempt > 0, wait=wait)
            places = await self._attempt(requests, places, definitions, results, epochs)
            if not places:
                break
        return results

    async def _definitions_of(self, flow_ids: Collection[str], *, anew: bool, wait: bool) -> Mapping[str, Loaded]:
        """Return definitions, those at hand unless they are to be read `anew`; None for a flow that does not exist."""
        current = self._definitions.current
        known = {} if anew else {each: planned for each in flow_ids if (planned := current(each)) is not None}
        if len(known) == len(flow_ids):
            return known
        unknown = sorted(each for each in flow_ids if each not in known)
        return {**known, **await self._definitions.load(unknown, large=wait)}

    async def _attempt(
        self,
        requests: Sequence[CycleRequest],
        places: Sequence[int],
        definitions: Mapping[str, Loaded],
        results: list[BeginResult],
        epochs: Epochs,
    ) -> list[int]:
        """Begin the requests at the indexes `places`; return the indexes of those whose definition was out of date."""
        begin_requests: list[tuple[int, PlannedFlow, BeginRequest]] = []
        for place, new_id in zip(places, new_run_ids(len(places)), strict=True):
            planned = definitions.get(requests[place].flow_id)
            if isinstance(planned, Unreadable):
                self._unreadable.note(planned)
                results[place] = _UNREADABLE
            elif planned is not None:
                try:
                    begin_requests.append((place, planned, self._begin_request(requests[place], planned, new_id)))
                except UnknownZone:
                    log_unknown_zone(planned.shape.schedule.zone)
                    results[place] = _UNKNOWN_ZONE
            else:
                results[place] = _NOT_FOUND if requests[place].flow_id in definitions else _NOT_PARSED
        if not begin_requests:
            return []
        traceparents = [request.traceparent for _, _, request in begin_requests]
        answers: Sequence[BeginAnswer] = ()
        try:
            answers = await self._cycles.begin([request for _, _, request in begin_requests], epochs)
        finally:
            self._traces.end_spans(traceparents, answers)
        outdated: list[int] = []
        begun: list[ChainState] = []
        for (place, planned, request), answer in zip(begin_requests, answers, strict=True):
            results[place] = BeginResult(answer, planned)
            if answer.stopping:
                self._wake(Work.RUNS, planned.shape.flow_id, 0)
            if answer.state is not None:
                begun.append(answer.state)
                self._wake(Work.RUNS, planned.shape.flow_id, request.check_in_ms)
                count_begun(answer.state, planned.shape.schedule)
            elif answer.outcome is BeginOutcome.REVISION_CHANGED:
                outdated.append(place)
            elif answer.outcome is BeginOutcome.NOT_FOUND:
                self._definitions.forget(planned.shape.flow_id)
        if begun:
            self._open_states.put(begun)
            self._numbers.note(begun)
        return outdated

    async def rerun(
        self,
        before: ChainState,
        shape: CycleShape,
        rerun: Rerun,
        inputs_json: str,
        request: RememberedRequest | None,
        traceparent: str,
    ) -> BeginAnswer:
        """Begin a further run of a cycle whose run `before` has ended, with the same definition."""
        flow_id = before.name.flow_id
        wanted = RerunRequest(
            before,
            # A run has at most one rerun on record: if the store has lost it, the same rerun is the same run.
            run_id_of(flow_id, before.facts.run_id, repr(rerun.kept), inputs_json),
            rerun,
            self._first_check_ms(shape),
            shape.timeout_ms,
            inputs_json,
            self._traces.begin_span(flow_id, RERUN, traceparent, before.facts.traceparent),
            request,
        )
        answers: Sequence[BeginAnswer] = ()
        try:
            answers = [await self._cycles.begin_rerun(wanted)]
        finally:
            self._traces.end_spans([wanted.traceparent], answers)
        (answer,) = answers
        if answer.state is not None:
            self._open_states.put([answer.state])
            count_rerun()
            self._wake(Work.RUNS, flow_id, wanted.check_in_ms)
        return answer

    def _first_check_ms(self, shape: CycleShape) -> int:
        return min(self._check_in_ms, shape.timeout_ms) if shape.timeout_ms else self._check_in_ms

    def _begin_request(self, request: CycleRequest, planned: PlannedFlow, new_id: str) -> BeginRequest:
        schedule = planned.shape.schedule
        event, inputs_json = None, request.inputs_json
        if request.event is not None:
            verdict = Verdict(request.due_ms, schedule.standby_ms)
            event, inputs_json = _event_firing(request.event, request, schedule), request.event.inputs_json
        elif request.due_ms:
            verdict = schedule.judge(request.due_ms, request.now_ms)
        else:
            verdict = Verdict(request.planned_ms, None)
        run_id = request.run_id or _run_id(request, planned.shape, verdict.fire_ms) or new_id
        if request.origin is CycleOrigin.SCHEDULE:
            unused = self._numbers.at_least_for(request.flow_id, verdict.fire_ms or 0)
        else:
            unused = self._numbers.at_least(request.flow_id, run_id)
        return BeginRequest(
            planned.shape,
            run_id,
            request.origin,
            self._first_check_ms(planned.shape),
            planned_ms=verdict.fire_ms or 0,
            due_ms=request.due_ms,
            ahead=request.ahead,
            next_ms=verdict.next_ms or 0,
            missed=verdict.missed,
            queued=request.queued,
            schedule_epoch=request.schedule_epoch,
            inputs_json=inputs_json,
            traceparent=self._traces.begin_span(request.flow_id, request.origin, request.traceparent),
            request=request.request,
            replaces=request.replaces,
            at_least=max(request.at_least, unused),
            backfill=request.backfill,
            parent=request.parent,
            event=event,
        )


def _event_firing(event: DueEvent, request: CycleRequest, schedule: ScheduleDefinition) -> EventFiring:
    """Say whether a cycle of a flow with this schedule is to begin for an event."""
    if schedule.on is None or schedule.on.event_name != event.name:
        return EventFiring(event.event_id, FiringOutcome.SKIPPED, "the flow now begins on something else")
    if schedule.is_missed(request.due_ms, request.now_ms):
        return EventFiring(event.event_id, FiringOutcome.MISSED, "found due too late")
    return EventFiring(event.event_id)


def _run_id(request: CycleRequest, shape: CycleShape, fire_ms: int | None) -> str:
    """Return the id of a run that is to begin, "" for a new one.

    For a planned time, of a backfill too, for an event or an attempt of a node, the id is always the same. If the store
    has forgotten a run that the node task manager still has, the run that begins instead is the same run, and none of
    it runs twice.
    """
    if request.parent is not None:
        return run_id_of(request.flow_id, shape.digest, request.parent.request_id)
    if request.backfill is not None:
        of, created_ms = request.backfill.backfill_id, request.backfill.created_ms
        return run_id_of(request.flow_id, shape.digest, f"{shape.revision} backfill {of} {created_ms} {fire_ms}")
    if request.schedule_epoch and fire_ms:
        event_id = request.event.event_id if request.event is not None else ""
        return run_id_of(
            request.flow_id, shape.digest, f"{shape.revision} {request.schedule_epoch} {fire_ms}", event_id
        )
    return ""
