"""Cycles and their chain states in memory."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import MappingProxyType

from tradewind.scheduler.domain.beginning import BeginAnswer, BeginOutcome, BeginRequest, RerunRequest, begun_state
from tradewind.scheduler.domain.chain_state import (
    ERROR,
    MEMORY,
    REASON,
    RESULT,
    STATUS,
    STOP,
    SUBMITTED,
    ChainState,
    FollowUp,
    Notes,
    UpdateOutcome,
    UpdateResult,
    component_field,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus, is_terminal
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.firing import FiringOutcome
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.log_line import LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.ports.flows import Tidied
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.stores.memory.backfills import add_run, advance, end_run
from tradewind.scheduler.stores.memory.data import (
    LOG_CYCLES,
    RETENTION_MS,
    Data,
    Flow,
    Run,
)
from tradewind.scheduler.stores.memory.ends import add_end
from tradewind.scheduler.stores.memory.firings import (
    apply_overlap,
    count_failures,
    end_flow_that_is_over,
    record_firing,
    settle_event,
)
from tradewind.scheduler.stores.memory.trimming import trim
from tradewind.server.partitions import partition_of

_MAX_TRIMMED = 20
_MANY_KEPT, _TRIM_BATCH = 100, 10
"""A flow that keeps 100 cycles or more drops the oldest together, once there are ten to drop."""


class MemoryCycles:
    """Implements CycleRecords and ChainStateRepository."""

    def __init__(self, data: Data, publishes_ends: Callable[[], bool], settle_ms: int) -> None:
        self._data = data
        self._publishes_ends = publishes_ends
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
        remembered, planned_ms, next_ms = request.request, request.planned_ms, request.next_ms
        event_id = request.event.event_id if request.event else ""
        if request.replaces >= 0:
            remembered = self._remove_replaced_run(flow, RunName(flow.flow_id, request.replaces), request.run_id, now)
        else:
            refusal = self._refusal(request, flow)
            if refusal is not None:
                return refusal
            firing = flow.firings.get(planned_ms) if 0 < request.due_ms < planned_ms else None
            if firing is not None and firing.outcome is FiringOutcome.FIRED:
                # The planned time to catch up with has already had its cycle, from a backfill.
                planned_ms, request = 0, request._replace(planned_ms=0)
            if request.queued:
                waiting = flow.queued.pop(0)
                planned_ms, event_id = waiting.planned_ms, waiting.event_id
                request = request._replace(inputs_json=waiting.inputs_json or request.inputs_json)
            elif request.scheduled:
                if request.missed is not None:
                    record_firing(flow, now, request.missed, FiringOutcome.MISSED, "found due too late")
                if planned_ms and 0 < request.shape.schedule.max_cycles <= flow.fired:
                    # A new revision may allow fewer cycles than have already begun.
                    record_firing(
                        flow, now, planned_ms, FiringOutcome.DROPPED, "max_cycles was reached", event_id=event_id
                    )
                    planned_ms, request = 0, request._replace(planned_ms=0, next_ms=0)
                blocked = bool(flow.blocking_runs or flow.queued) and flow.overlap is not OverlapPolicy.ALLOW
                stopping, cycles = False, 1
                if planned_ms and blocked:
                    stopping, cycles = apply_overlap(self._data, flow, planned_ms, now, event_id, request.inputs_json)
                next_ms = self._plan(request, flow, now, cycles)
                if not planned_ms or blocked:
                    end_flow_that_is_over(flow, now, FlowStatus.COMPLETED)
                    return BeginAnswer(BeginOutcome.SETTLED, next_ms=next_ms, revision=flow.revision, stopping=stopping)
        return self._create(request, remembered, flow, planned_ms, next_ms, now, event_id)

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

    def _remove_replaced_run(self, flow: Flow, name: RunName, run_id: str, now: int) -> RememberedRequest | None:
        """Remove a run and return the request that it was begun for, if that is still remembered."""
        run = flow.runs.get(name)
        if run is None or run.state.facts.run_id != run_id:
            return None
        self._data.remove_run(flow, name)
        for at, firing in list(flow.firings.items()):
            if (firing.cycle, firing.run, firing.run_id) == (name.cycle, name.run, run_id):
                del flow.firings[at]
        first = self._data.first_answer(flow.flow_id, run.request) if run.request else None
        return replace(run.request, lifetime_ms=first.expires_ms - now) if run.request and first else None

    def _refusal(self, request: BeginRequest, flow: Flow) -> BeginAnswer | None:
        """Return the answer to a request that begins nothing; at most, it moves on a backfill or the schedule."""
        if request.request is not None:
            first = self._data.first_answer(flow.flow_id, request.request)
            if first is not None:
                if first.payload != request.request.payload:
                    return BeginAnswer(BeginOutcome.REUSED, revision=flow.revision)
                return BeginAnswer(BeginOutcome.DUPLICATE, first.run, first.run_id, revision=flow.revision)
        same_revision = request.shape.revision == flow.revision and flow.digest.startswith(request.shape.digest)
        if request.event is not None and settle_event(request, request.event, flow, self._data.now(), same_revision):
            return BeginAnswer(BeginOutcome.SETTLED, next_ms=flow.next_execution_ms, revision=flow.revision)
        if request.scheduled:
            stale = request.schedule_epoch < flow.schedule_epoch
            if stale and not request.queued and request.event is None:
                return BeginAnswer(BeginOutcome.STALE_EPOCH, revision=flow.revision)
            if flow.status is not FlowStatus.RUNNING:
                return BeginAnswer(BeginOutcome.NOT_RUNNING, revision=flow.revision)
            firing = None if request.queued else flow.firings.get(request.due_ms)
            if firing is not None:
                if flow.next_execution_ms == request.due_ms:
                    # Begun by a backfill, or planned by another schedule: this schedule goes on after that time.
                    later = request.planned_ms > request.due_ms
                    flow.next_execution_ms = request.planned_ms if later else request.next_ms
                    end_flow_that_is_over(flow, self._data.now(), FlowStatus.COMPLETED)
                if firing.outcome is not FiringOutcome.FIRED:
                    return BeginAnswer(BeginOutcome.SETTLED, next_ms=flow.next_execution_ms, revision=flow.revision)
                name = RunName(flow.flow_id, firing.cycle, firing.run)
                return BeginAnswer(BeginOutcome.DUPLICATE, name, firing.run_id, flow.next_execution_ms, flow.revision)
        if not same_revision:
            return BeginAnswer(BeginOutcome.REVISION_CHANGED, revision=flow.revision)
        if request.backfill is not None:
            outcome = advance(flow, request.backfill, self._data.now())
            return None if outcome is BeginOutcome.BEGUN else BeginAnswer(outcome, revision=flow.revision)
        if flow.overlap is not OverlapPolicy.ALLOW and request.ahead and (flow.blocking_runs or flow.queued):
            return BeginAnswer(BeginOutcome.EARLY, revision=flow.revision)
        if flow.blocking_runs and flow.overlap is not OverlapPolicy.ALLOW and request.parent is None:
            # The only firing of a flow that runs once is not given up: it comes again until it can begin.
            once = request.shape.schedule.once and flow.overlap is OverlapPolicy.SKIP
            if request.queued or not request.scheduled or once:
                not_stopping = [name for name in flow.blocking_runs if not flow.open[name]]
                blocking = max(not_stopping or flow.blocking_runs)
                return BeginAnswer(BeginOutcome.OVERLAP, blocking, revision=flow.revision)
        if request.queued and not flow.queued:
            return BeginAnswer(BeginOutcome.SETTLED, revision=flow.revision)
        return None

    def _create(
        self,
        request: BeginRequest,
        remembered: RememberedRequest | None,
        flow: Flow,
        planned_ms: int,
        next_ms: int,
        now: int,
        event_id: str,
    ) -> BeginAnswer:
        cycle = max(flow.last_cycle + 1, request.at_least)
        while RunName(flow.flow_id, cycle) in flow.runs:
            cycle += 1
        name = RunName(flow.flow_id, cycle)
        state = begun_state(request, name, max(now, planned_ms) if request.ahead else now, planned_ms)
        flow.runs[name] = Run(state, remembered)
        flow.open[name] = False
        self._data.publish(state)
        self._data.open[name] = now + request.check_in_ms
        flow.logs.pop(cycle - LOG_CYCLES, None)
        flow.last_cycle = cycle
        if request.backfill is not None:
            add_run(flow, request.backfill.backfill_id, planned_ms, name, request.run_id, now)
            reason = f"backfill {request.backfill.backfill_id}"
            record_firing(flow, now, planned_ms, FiringOutcome.FIRED, reason, run=(name, request.run_id))
        if request.parent is not None:
            flow.filling[name] = 0
        if request.scheduled:
            fired = FiringOutcome.FIRED
            record_firing(flow, now, planned_ms, fired, run=(name, request.run_id), event_id=event_id)
        if remembered is not None:
            self._data.remember(flow.flow_id, remembered, now, name, request.run_id)
        return BeginAnswer(BeginOutcome.BEGUN, name, request.run_id, next_ms, flow.revision, state)

    async def begin_rerun(self, request: RerunRequest) -> BeginAnswer:
        now, source = self._data.now(), request.source.name
        flow = self._data.flows.get(source.flow_id)
        if flow is None:
            return BeginAnswer(BeginOutcome.NOT_FOUND)
        if flow.status is FlowStatus.DELETING:
            return BeginAnswer(BeginOutcome.DELETING)
        if request.request is not None and (first := await self.first_answer(flow.flow_id, request.request)):
            return first
        latest = max((name for name in flow.runs if name.cycle == source.cycle), default=None)
        before = flow.runs.get(source)
        if latest != source or before is None or before.state.facts.run_id != request.rerun.source_id:
            return BeginAnswer(BeginOutcome.NOT_LATEST, latest or source._replace(run=0))
        if before.state.status is CycleStatus.RUNNING:
            return BeginAnswer(BeginOutcome.NOT_ENDED, source)
        state = replace(request, source=before.state).first_state(now)
        flow.runs[state.name] = Run(state, request.request)
        flow.open[state.name] = False
        self._data.open[state.name] = now + request.check_in_ms
        if request.request is not None:
            self._data.remember(flow.flow_id, request.request, now, state.name, request.run_id)
        self._data.publish(state)
        return BeginAnswer(BeginOutcome.BEGUN, state.name, request.run_id, 0, state.facts.revision, state)

    async def first_answer(self, flow_id: str, request: RememberedRequest) -> BeginAnswer | None:
        self._data.now()
        first = self._data.first_answer(flow_id, request)
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

    async def newest(self, flow_id: str, below: RunName | None, limit: int) -> list[ChainState]:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        names = sorted(flow.runs, reverse=True) if flow else []
        return [flow.runs[name].state for name in names if flow and (below is None or name < below)][:limit]

    async def latest_run(self, flow_id: str, cycle: int) -> RunName | None:
        self._data.now()
        flow = self._data.flows.get(flow_id)
        return max((name for name in flow.runs if name.cycle == cycle), default=None) if flow else None

    async def load(self, run: RunName) -> ChainState | None:
        self._data.now()
        found = self._data.find_run(run)
        return found.state if found else None

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        return [await self.load(run) for run in runs]

    async def try_update(self, state: ChainState, fields: Collection[str]) -> UpdateResult:
        return (await self.update_many([RunUpdate(state, fields)]))[0]

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        return [
            UpdateResult(UpdateOutcome.OVERTAKEN)
            if self._data.overtaken(update.state.name.flow_id, epochs)
            else self._update(update)
            for update in updates
        ]

    def _update(self, update: RunUpdate) -> UpdateResult:
        now = self._data.now()
        new, run = update.state, self._data.find_run(update.state.name)
        if run is None or run.state.facts.run_id != new.facts.run_id:
            return UpdateResult(UpdateOutcome.MISSING)
        old = run.state
        if is_terminal(old.status):
            return UpdateResult(UpdateOutcome.TERMINAL, old.version)
        if old.version != new.version:
            return UpdateResult(UpdateOutcome.CONFLICT, old.version)
        flow = self._data.flows[new.name.flow_id]
        run.state = _written(old, new, update.fields)
        follow_up = FollowUp(0)
        if update.log is not None:
            self._data.append_log_line(flow, new.name.cycle, update.log.level, LogSource.SCHEDULER, update.log.text)
        if update.ending is not None:
            parent = old.facts.parent is not None
            if parent:
                flow.filling.pop(new.name, None)
                add_end(self._data.returns, EndedRun(new.name, new.facts.run_id, update.ending, now))
            self._end(flow, run, update.ending, now)
            first, of_backfill = not new.name.run, bool(old.facts.backfill_id)
            paused = (
                first
                and not of_backfill
                and not parent
                and count_failures(self._data, flow, now, new.name.cycle, update.ending)
            )
            published = self._publishes_ends()
            if published:
                add_end(self._data.ends, EndedRun(new.name, new.facts.run_id, update.ending, now))
            follow_up = (
                (FollowUp.ADVANCE_QUEUE if of_backfill or flow.queued else FollowUp(0))
                | (FollowUp.SETTLE_OUTBOX if paused else FollowUp(0))
                | (FollowUp.PUBLISH_END if published else FollowUp(0))
                | (FollowUp.RETURN_END if parent else FollowUp(0))
            )
            end_flow_that_is_over(flow, now, update.flow_status or FlowStatus.COMPLETED)
            if of_backfill:
                end_run(flow, new.name, update.ending, now)
        elif update.check_in_ms >= 0 and new.name in self._data.open:
            self._data.open[new.name] = now + update.check_in_ms
        self._data.publish(run.state)
        return UpdateResult(UpdateOutcome.OK, run.state.version, run.state.end_ms, follow_up)

    def _end(self, flow: Flow, run: Run, status: CycleStatus, now: int) -> None:
        name = run.state.name
        # A run that began ahead of its planned time must not end before that time.
        run.state = run.state._replace(status=status, end_ms=max(now, run.state.facts.start_ms))
        # The runs of a cycle stay as long as its latest run.
        for other in flow.runs:
            if other.cycle == name.cycle and other <= name:
                flow.runs[other].expires_ms = now + (run.state.facts.keep_for_ms or RETENTION_MS)
        flow.open.pop(name, None)
        self._data.open.pop(name, None)
        keep = run.state.facts.keep_cycles
        least = 1 if keep < _MANY_KEPT else _TRIM_BATCH
        trim(self._data, flow, keep, now - self._settle_ms, least, _MAX_TRIMMED)


def _written(old: ChainState, new: ChainState, fields: Collection[str]) -> ChainState:
    """Return the old state with the named fields of the new one, one version up; status and end are set elsewhere."""
    components = dict(old.components)
    for component_id, end in new.components.items():
        if component_field(component_id) in fields:
            components[component_id] = end
    known = {REASON, STOP, SUBMITTED, STATUS, ERROR, MEMORY, RESULT}
    unknown = set(fields) - known - {component_field(each) for each in new.components}
    if unknown:
        raise ValueError(f"a chain state has no fields {sorted(unknown)} that could be written")
    return old._replace(
        version=old.version + 1,
        components=MappingProxyType(components),
        reason=new.reason if REASON in fields else old.reason,
        stop=new.stop if STOP in fields else old.stop,
        submitted_ms=new.submitted_ms if SUBMITTED in fields else old.submitted_ms,
        notes=Notes(
            new.notes.error if ERROR in fields else old.notes.error,
            new.notes.memory if MEMORY in fields else old.notes.memory,
            new.notes.result_json if RESULT in fields else old.notes.result_json,
        ),
    )
