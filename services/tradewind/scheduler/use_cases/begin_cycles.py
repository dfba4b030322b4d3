"""Begins cycles of many flows at once, in few script calls whatever their partitions."""

from collections.abc import Sequence
from typing import NamedTuple

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
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedFlow, PlannedRun
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.identifiers import new_run_id, run_id_of
from tradewind.server.schedules.schedule import Verdict

_REVISIONS_TRIED = 5


class Wish(NamedTuple):
    """A wish for a cycle; the fields are as in BeginRequest. `traceparent` is the caller's.

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


class Begun(NamedTuple):
    """The answer to a wish; `planned` is set if the flow exists."""

    answer: BeginAnswer
    planned: PlannedFlow | None = None

    @property
    def run(self) -> PlannedRun | None:
        """The run to hand over; None when no cycle has begun."""
        state = self.answer.state
        return None if state is None or self.planned is None else PlannedRun(state, self.planned)


_NOT_FOUND = Begun(BeginAnswer(BeginOutcome.NOT_FOUND))


class BeginCycles:
    """Begins cycles; after `check_in_ms`, the owner that `wake` wakes looks after a run if nothing is heard of it."""

    def __init__(
        self,
        cycles: CycleRecords,
        definitions: Definitions,
        open_states: OpenStates,
        traces: TraceRuns,
        wake: WakeOwner,
        check_in_ms: int,
    ) -> None:
        self._cycles = cycles
        self._definitions = definitions
        self._open_states = open_states
        self._traces = traces
        self._wake = wake
        self._check_in_ms = check_in_ms

    async def __call__(self, wishes: Sequence[Wish], epochs: Epochs = NOT_OWNER) -> list[Begun]:
        """Begin cycles, each judged by itself; return the answers in the order of the wishes.

        With `epochs` the caller acts as the owner of the partitions. Wishes for one flow keep their order; those for
        different flows do not depend on each other.
        """
        results = [_NOT_FOUND] * len(wishes)
        places: Sequence[int] = range(len(wishes))
        for attempt in range(_REVISIONS_TRIED):
            if attempt:
                await self._definitions.load(sorted({wishes[place].flow_id for place in places}))
            places = await self._attempt(wishes, places, results, epochs)
            if not places:
                break
        return results

    async def _attempt(
        self, wishes: Sequence[Wish], places: Sequence[int], results: list[Begun], epochs: Epochs
    ) -> list[int]:
        """Begin the wishes at the indexes `places` and return the indexes of those whose definition was out of date."""
        current = self._definitions.current
        unknown = {wishes[place].flow_id for place in places if current(wishes[place].flow_id) is None}
        if unknown:
            await self._definitions.load(sorted(unknown))
        asked: list[tuple[int, PlannedFlow, BeginRequest]] = []
        for place in places:
            planned = current(wishes[place].flow_id)
            if planned is not None:
                asked.append((place, planned, self._request(wishes[place], planned)))
        if not asked:
            return []
        traceparents = [request.traceparent for _, _, request in asked]
        answers: Sequence[BeginAnswer] = ()
        try:
            answers = await self._cycles.begin([request for _, _, request in asked], epochs)
        finally:
            self._traces.begun(traceparents, answers)
        again: list[int] = []
        begun: list[ChainState] = []
        for (place, planned, request), answer in zip(asked, answers, strict=True):
            results[place] = Begun(answer, planned)
            if answer.stopping:
                self._wake(Work.RUNS, planned.shape.flow_id, 0)
            if answer.state is not None:
                begun.append(answer.state)
                self._wake(Work.RUNS, planned.shape.flow_id, request.check_in_ms)
                count_begun(answer.state)
            elif answer.outcome is BeginOutcome.REVISION_CHANGED:
                again.append(place)
            elif answer.outcome is BeginOutcome.NOT_FOUND:
                self._definitions.forget(planned.shape.flow_id)
        if begun:
            self._open_states.keep(begun)
        return again

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
            new_run_id(),
            rerun,
            self._look_after_ms(shape),
            shape.timeout_ms,
            inputs_json,
            self._traces.beginning(flow_id, RERUN, traceparent, before.facts.traceparent),
            request,
        )
        answers: list[BeginAnswer] = []
        try:
            answers.append(await self._cycles.begin_rerun(wanted))
        finally:
            self._traces.begun([wanted.traceparent], answers)
        (answer,) = answers
        if answer.state is not None:
            self._open_states.keep([answer.state])
            count_rerun()
            self._wake(Work.RUNS, flow_id, wanted.check_in_ms)
        return answer

    def _look_after_ms(self, shape: CycleShape) -> int:
        return min(self._check_in_ms, shape.timeout_ms) if shape.timeout_ms else self._check_in_ms

    def _request(self, wish: Wish, planned: PlannedFlow) -> BeginRequest:
        schedule = planned.shape.schedule
        event, inputs_json = None, wish.inputs_json
        if wish.event is not None:
            verdict = Verdict(wish.due_ms, schedule.standby_ms)
            event, inputs_json = _judged(wish.event, wish, schedule), wish.event.inputs_json
        elif wish.due_ms:
            verdict = schedule.judge(wish.due_ms, wish.now_ms)
        else:
            verdict = Verdict(wish.planned_ms, None)
        return BeginRequest(
            shape=planned.shape,
            run_id=wish.run_id or _run_id(wish, planned.shape, verdict.fire_ms),
            origin=wish.origin,
            check_in_ms=self._look_after_ms(planned.shape),
            planned_ms=verdict.fire_ms or 0,
            due_ms=wish.due_ms,
            ahead=wish.ahead,
            next_ms=verdict.next_ms or 0,
            missed=verdict.missed,
            queued=wish.queued,
            schedule_epoch=wish.schedule_epoch,
            inputs_json=inputs_json,
            traceparent=self._traces.beginning(wish.flow_id, wish.origin.value, wish.traceparent),
            request=wish.request,
            replaces=wish.replaces,
            at_least=wish.at_least,
            backfill=wish.backfill,
            parent=wish.parent,
            event=event,
        )


def _judged(event: DueEvent, wish: Wish, schedule: ScheduleDefinition) -> EventFiring:
    """Say whether a cycle of a flow with this schedule is to begin for an event."""
    if schedule.on is None or schedule.on.event_name != event.name:
        return EventFiring(event.event_id, FiringOutcome.SKIPPED, "the flow now begins on something else")
    if schedule.is_missed(wish.due_ms, wish.now_ms):
        return EventFiring(event.event_id, FiringOutcome.MISSED, "found due too late")
    return EventFiring(event.event_id)


def _run_id(wish: Wish, shape: CycleShape, fire_ms: int | None) -> str:
    """Return the id of a run that is to begin.

    For a planned time, an event or an attempt of a node, the id is always the same. If the store has forgotten a run
    that the node task manager still has, the run that begins instead is the same run, and none of it runs twice.
    """
    if wish.parent is not None:
        return run_id_of(wish.flow_id, shape.digest, wish.parent.request_id)
    if wish.schedule_epoch and fire_ms:
        event_id = wish.event.event_id if wish.event is not None else ""
        return run_id_of(wish.flow_id, shape.digest, f"{shape.revision} {wish.schedule_epoch} {fire_ms}", event_id)
    return new_run_id()
