"""Cycles in memory: their beginning, and which are on record."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from tradewind.scheduler.domain.beginning import (
    BeginAnswer,
    BeginOutcome,
    BeginRequest,
    EventFiring,
    RerunRequest,
    begun_state,
)
from tradewind.scheduler.domain.chain_state import ChainState, StopRequest
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import Tidied
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.stores.memory.backfills import add_run, advance
from tradewind.scheduler.stores.memory.data import BLOCKED_MS, LOG_CYCLES, Data, Flow, Run, Waiting
from tradewind.scheduler.stores.memory.firings import apply_overlap, end_flow_that_is_over, record_firing, settle_event
from tradewind.scheduler.stores.memory.trimming import trim
from tradewind.server.partitions import partition_of


class MemoryCycles:
    """Implements CycleRecords."""

    def __init__(self, data: Data, settle_ms: int) -> None:
        self._data = data
        self._settle_ms = settle_ms

    async def begin(self, requests: Sequence[BeginRequest], epochs: Epochs = NOT_OWNER) -> list[BeginAnswer]:
        return [
            BeginAnswer(BeginOutcome.OVERTAKEN)
            if self._data.overtaken(request.shape.flow_id, epochs)
            else self._begin(request)
            for request in requests
        ]

    def _begin(self, request: BeginRequest) -> BeginAnswer:
        now = self._data.now()
        flow = self._data.flows.get(request.shape.flow_id)
        if flow is None:
            return BeginAnswer(BeginOutcome.NOT_FOUND)
        if flow.status is FlowStatus.DELETING:
            return BeginAnswer(BeginOutcome.DELETING, revision=flow.revision)
        if request.replaces >= 0:
            replaced = flow.runs.get(RunName(flow.flow_id, request.replaces))
            if replaced is None or replaced.state.facts.run_id != request.run_id:
                return BeginAnswer(BeginOutcome.NOT_FOUND, revision=flow.revision)
            remembered = self._remove_replaced_run(flow, replaced, now)
            return self._create(structs.replace(request, request=remembered), flow, now, replaced.state.stop)
        refusal = self._refusal(request, flow)
        if refusal is not None:
            return refusal
        firing = flow.firings.get(request.planned_ms) if 0 < request.due_ms < request.planned_ms else None
        if firing is not None and firing.outcome is FiringOutcome.FIRED:
            # The planned time to catch up with has already had its cycle, from a backfill.
            request = structs.replace(request, planned_ms=0)
        if request.queued:
            return self._create(_for_waiting(request, flow.queued.pop(0)), flow, now)
        if request.scheduled:
            return self._begin_planned(request, flow, now)
        return self._create(request, flow, now)

    def _begin_planned(self, request: BeginRequest, flow: Flow, now: int) -> BeginAnswer:
        """Plan the next time, and begin a cycle for the planned time or settle it."""
        event_id = _event_id(request)
        if request.missed is not None:
            record_firing(flow, now, request.missed, FiringOutcome.MISSED, "found due too late")
        if request.planned_ms and 0 < request.shape.schedule.max_cycles <= flow.fired:
            # A new revision may allow fewer cycles than have already begun.
            reason = "max_cycles was reached"
            record_firing(flow, now, request.planned_ms, FiringOutcome.DROPPED, reason, event_id=event_id)
            request = structs.replace(request, planned_ms=0, next_ms=0)
        blocked = bool(flow.blocking_runs or flow.queued) and flow.overlap is not OverlapPolicy.ALLOW
        stopping, cycles = False, 1
        if request.planned_ms and blocked:
            inputs_json = request.inputs_json if event_id else ""
            waiting = Waiting(request.planned_ms, event_id, request.run_id, inputs_json)
            stopping, cycles = apply_overlap(self._data, flow, waiting, now)
        request = structs.replace(request, next_ms=self._plan(request, flow, now, cycles))
        if request.planned_ms and not blocked:
            return self._create(request, flow, now)
        end_flow_that_is_over(flow, now, FlowStatus.COMPLETED)
        return BeginAnswer(BeginOutcome.SETTLED, next_ms=request.next_ms, revision=flow.revision, stopping=stopping)

    def _plan(self, request: BeginRequest, flow: Flow, now: int, cycles: int) -> int:
        """Put the next planned time on record, and return it; `cycles` more cycles have begun or wait."""
        next_ms, most = request.next_ms, request.shape.schedule.max_cycles
        if request.planned_ms and most:
            flow.fired += cycles
            next_ms = 0 if flow.fired >= most else next_ms
        flow.next_execution_ms = next_ms
        if request.event is not None and not next_ms:
            self._data.outbox[flow.flow_id] = now
        return next_ms

    def _remove_replaced_run(self, flow: Flow, run: Run, now: int) -> RememberedRequest | None:
        """Remove a run and return the request that it was begun for, if that is still remembered."""
        name, run_id = run.state.name, run.state.facts.run_id
        self._data.remove_run(flow, name)
        for at, firing in list(flow.firings.items()):
            if (firing.cycle, firing.run, firing.run_id) == (name.cycle, name.run, run_id):
                del flow.firings[at]
        first = self._data.first_answer(run.request) if run.request else None
        return structs.replace(run.request, lifetime_ms=first.expires_ms - now) if run.request and first else None

    def _refusal(self, request: BeginRequest, flow: Flow) -> BeginAnswer | None:
        """Return the answer to a request that begins nothing; at most, it moves on a backfill or the schedule."""
        refusal = self._first_answer(request, flow)
        if refusal is not None:
            return refusal
        same_revision = request.shape.revision == flow.revision and flow.digest.startswith(request.shape.digest)
        if request.event is not None and settle_event(request, request.event, flow, self._data.now(), same_revision):
            return BeginAnswer(BeginOutcome.SETTLED, next_ms=flow.next_execution_ms, revision=flow.revision)
        if request.scheduled:
            refusal = self._schedule_refusal(request, flow)
            if refusal is not None:
                return refusal
        if not same_revision:
            return BeginAnswer(BeginOutcome.REVISION_CHANGED, revision=flow.revision)
        if request.backfill is not None:
            outcome = advance(flow, request.backfill, self._data.now())
            return None if outcome is BeginOutcome.BEGUN else BeginAnswer(outcome, revision=flow.revision)
        return _overlap_refusal(request, flow, self._data.now())

    def _first_answer(self, request: BeginRequest, flow: Flow) -> BeginAnswer | None:
        """Return the answer to a client's request that was made before."""
        first = self._data.first_answer(request.request) if request.request is not None else None
        if request.request is None or first is None:
            return None
        if first.payload != request.request.payload:
            return BeginAnswer(BeginOutcome.REUSED, revision=flow.revision)
        return BeginAnswer(BeginOutcome.DUPLICATE, first.run, first.run_id, revision=flow.revision)

    def _schedule_refusal(self, request: BeginRequest, flow: Flow) -> BeginAnswer | None:
        """Refuse a planned time of an earlier schedule, of a flow that is not running, or that has been answered."""
        stale = request.schedule_epoch < flow.schedule_epoch
        if stale and not request.queued and request.event is None:
            return BeginAnswer(BeginOutcome.STALE_EPOCH, revision=flow.revision)
        if flow.status is not FlowStatus.RUNNING:
            return BeginAnswer(BeginOutcome.NOT_RUNNING, revision=flow.revision)
        firing = None if request.queued else flow.firings.get(request.due_ms)
        if firing is None:
            return None
        if flow.next_execution_ms == request.due_ms:
            # Begun by a backfill, or planned by another schedule: this schedule goes on after that time.
            later = request.planned_ms > request.due_ms
            flow.next_execution_ms = request.planned_ms if later else request.next_ms
            end_flow_that_is_over(flow, self._data.now(), FlowStatus.COMPLETED)
        if firing.outcome is not FiringOutcome.FIRED:
            return BeginAnswer(BeginOutcome.SETTLED, next_ms=flow.next_execution_ms, revision=flow.revision)
        name = RunName(flow.flow_id, firing.cycle, firing.run)
        return BeginAnswer(BeginOutcome.DUPLICATE, name, firing.run_id, flow.next_execution_ms, flow.revision)

    def _create(self, request: BeginRequest, flow: Flow, now: int, stop: StopRequest | None = None) -> BeginAnswer:
        remembered, planned_ms = request.request, request.planned_ms
        cycle = max(flow.last_cycle + 1, request.at_least)
        while RunName(flow.flow_id, cycle) in flow.runs:
            cycle += 1
        name = RunName(flow.flow_id, cycle)
        state = begun_state(request, name, max(now, planned_ms) if request.ahead else now, planned_ms)
        state = structs.replace(state, stop=stop)
        flow.runs[name] = Run(state, remembered)
        flow.open[name] = False
        self._data.publish(state)
        self._data.open[name] = now if stop is not None else now + request.check_in_ms
        flow.logs.pop(cycle - LOG_CYCLES, None)
        flow.last_cycle = cycle
        if request.backfill is not None:
            add_run(flow, request.backfill.backfill_id, planned_ms, name, request.run_id, now)
            reason = f"backfill {request.backfill.backfill_id}"
            record_firing(flow, now, planned_ms, FiringOutcome.FIRED, reason, run=(name, request.run_id))
        if request.parent is not None:
            flow.filling[name] = 0
        if request.scheduled:
            run, event_id = (name, request.run_id), _event_id(request)
            record_firing(flow, now, planned_ms, FiringOutcome.FIRED, run=run, event_id=event_id)
        if remembered is not None:
            self._data.remember(remembered, now, name, request.run_id)
        return BeginAnswer(BeginOutcome.BEGUN, name, request.run_id, request.next_ms, flow.revision, state)

    async def begin_rerun(self, request: RerunRequest) -> BeginAnswer:
        now, source = self._data.now(), request.source.name
        flow = self._data.flows.get(source.flow_id)
        if flow is None:
            return BeginAnswer(BeginOutcome.NOT_FOUND)
        if flow.status is FlowStatus.DELETING:
            return BeginAnswer(BeginOutcome.DELETING)
        if request.request is not None and (first := await self.first_answer(request.request)):
            return first
        latest = max((name for name in flow.runs if name.cycle == source.cycle), default=None)
        before = flow.runs.get(source)
        if latest != source or before is None or before.state.facts.run_id != request.rerun.source_id:
            return BeginAnswer(BeginOutcome.NOT_LATEST, latest or source._replace(run=0))
        if before.state.status is CycleStatus.RUNNING:
            return BeginAnswer(BeginOutcome.NOT_ENDED, source)
        state = replace(request, source=before.state).first_state(now)
        # Earlier runs of a cycle stay as long as its latest run.
        for name, run in flow.runs.items():
            if name.cycle == source.cycle:
                run.expires_ms = 0
        flow.runs[state.name] = Run(state, request.request)
        flow.open[state.name] = False
        self._data.open[state.name] = now + request.check_in_ms
        if request.request is not None:
            self._data.remember(request.request, now, state.name, request.run_id)
        self._data.publish(state)
        return BeginAnswer(BeginOutcome.BEGUN, state.name, request.run_id, 0, state.facts.revision, state)

    async def first_answer(self, request: RememberedRequest) -> BeginAnswer | None:
        self._data.now()
        first = self._data.first_answer(request)
        if first is None:
            return None
        if first.payload != request.payload or first.run is None:
            return BeginAnswer(BeginOutcome.REUSED)
        return BeginAnswer(BeginOutcome.DUPLICATE, first.run, first.run_id)

    async def tidy(self, partition: int, after: str, epoch: int) -> Tidied:
        now = self._data.now()
        if epoch and self._data.epochs.get(partition, 0) > epoch:
            return Tidied("", True)
        flows = [flow for flow in self._data.flows.values() if partition_of(flow.flow_id) == partition]
        ended_until = now - self._settle_ms
        trimmed = sum(trim(self._data, flow, flow.keep_cycles, ended_until) for flow in flows if flow.flow_id > after)
        for flow in flows:
            ends_ms = -flow.next_execution_ms
            if flow.flow_id > after and flow.status is FlowStatus.RUNNING and 1 < ends_ms <= now:
                flow.next_execution_ms = 0
                self._data.outbox[flow.flow_id] = now
                end_flow_that_is_over(flow, now, FlowStatus.COMPLETED)
        return Tidied("", True, trimmed)

    async def begun_flows(self, flow_ids: Sequence[str]) -> list[str]:
        self._data.now()
        return [each for each in flow_ids if (flow := self._data.flows.get(each)) and flow.runs]

    async def newest(self, flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        names = sorted(flow.runs, reverse=True) if flow else []
        return [flow.runs[name].state for name in names if flow and (below is None or name < below)][:limit]

    async def outlines(self, flow_id: str, below: RunName | None, limit: int) -> list[CycleOutline]:
        return [state.outline for state in await self.newest(flow_id, below, limit)]

    async def newest_open(self, flow_id: str, below: RunName) -> RunName | None:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        return max((name for name in flow.open if name < below), default=None) if flow else None

    async def latest_run(self, flow_id: str, cycle: int) -> RunName | None:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        return max((name for name in flow.runs if name.cycle == cycle), default=None) if flow else None


def _event_id(request: BeginRequest) -> str:
    return request.event.event_id if request.event is not None else ""


def _overlap_refusal(request: BeginRequest, flow: Flow, now: int) -> BeginAnswer | None:
    """Refuse a request that open cycles, or planned times that wait, stand in the way of."""
    allowed = flow.overlap is OverlapPolicy.ALLOW
    if request.ahead and not allowed and (flow.blocking_runs or flow.queued):
        return BeginAnswer(BeginOutcome.EARLY, revision=flow.revision)
    if flow.blocking_runs and not allowed and request.parent is None:
        # The only firing of a flow that runs once is not skipped: it comes again until it can begin, or it is too late.
        once = request.shape.schedule.once and flow.overlap is OverlapPolicy.SKIP
        if request.queued or not request.scheduled or once:
            if request.queued:
                flow.retry_ms = now + BLOCKED_MS
            not_stopping = [name for name in flow.blocking_runs if not flow.open[name]]
            blocking = max(not_stopping or flow.blocking_runs)
            return BeginAnswer(BeginOutcome.OVERLAP, blocking, revision=flow.revision)
    if request.queued and not flow.queued:
        return BeginAnswer(BeginOutcome.SETTLED, revision=flow.revision)
    return None


def _for_waiting(request: BeginRequest, waiting: Waiting) -> BeginRequest:
    """Return the request for the cycle of the planned time that has waited longest."""
    return structs.replace(
        request,
        planned_ms=waiting.planned_ms,
        run_id=waiting.run_id,
        inputs_json=waiting.inputs_json or request.inputs_json,
        event=EventFiring(waiting.event_id) if waiting.event_id else None,
    )
