"""Chain states in memory."""

from collections.abc import Callable, Collection, Iterable, Sequence
from types import MappingProxyType

from msgspec import structs

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
from tradewind.scheduler.domain.log_line import LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import FLOW_AFTER, RunUpdate
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.stores.memory.backfills import end_run, look_again_at_all
from tradewind.scheduler.stores.memory.data import RETENTION_MS, Data, Flow, Run
from tradewind.scheduler.stores.memory.ends import add_end
from tradewind.scheduler.stores.memory.firings import count_failures, end_flow_that_is_over
from tradewind.scheduler.stores.memory.trimming import trim

_MAX_TRIMMED = 20
_MANY_KEPT, _TRIM_BATCH = 100, 10
"""A flow that keeps 100 cycles or more drops the oldest together, once there are ten to drop."""


class MemoryStates:
    """Implements ChainStateRepository."""

    def __init__(self, data: Data, publishes_ends: Callable[[], bool], settle_ms: int) -> None:
        self._data = data
        self._publishes_ends = publishes_ends
        self._settle_ms = settle_ms

    async def load(self, run: RunName) -> ChainState | None:
        self._data.now()
        found = self._data.find_run(run)
        return found.state if found else None

    async def load_many(self, runs: Sequence[RunName]) -> list[ChainState | None]:
        return [await self.load(run) for run in runs]

    async def update_many(self, updates: Sequence[RunUpdate], epochs: Epochs = NOT_OWNER) -> list[UpdateResult]:
        results = [
            UpdateResult(UpdateOutcome.OVERTAKEN)
            if self._data.overtaken(update.state.name.flow_id, epochs)
            else self._update(update)
            for update in updates
        ]
        self._trim(
            update.state
            for update, result in zip(updates, results, strict=True)
            if update.ending is not None and result.outcome is UpdateOutcome.OK
        )
        return results

    def _trim(self, ended: Iterable[ChainState]) -> None:
        """Trim the flows of runs that have ended, each once."""
        by_flow: dict[str, list[ChainState]] = {}
        for state in ended:
            by_flow.setdefault(state.name.flow_id, []).append(state)
        for flow_id, states in by_flow.items():
            keep = states[-1].facts.keep_cycles
            ended_until = self._data.now() - self._settle_ms
            least = 1 if keep < _MANY_KEPT else _TRIM_BATCH
            trim(self._data, self._data.flows[flow_id], keep, ended_until, least, len(states) * _MAX_TRIMMED)

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
            follow_up = self._end(flow, run, update.ending, now)
        elif update.check_in_ms >= 0 and new.name in self._data.open:
            self._data.open[new.name] = now + update.check_in_ms
        self._data.publish(run.state)
        return UpdateResult(UpdateOutcome.OK, run.state.version, run.state.end_ms, follow_up)

    def _end(self, flow: Flow, run: Run, ending: CycleStatus, now: int) -> FollowUp:
        """End a run, and its flow and backfill if it was the last of them; return what follows."""
        name, facts = run.state.name, run.state.facts
        # A run that began ahead of its planned time must not end before that time.
        run.state = structs.replace(run.state, status=ending, end_ms=max(now, facts.start_ms))
        # The runs of a cycle stay as long as its latest run.
        for other in flow.runs:
            if other.cycle == name.cycle and other <= name:
                flow.runs[other].expires_ms = now + (facts.keep_for_ms or RETENTION_MS)
        flow.open.pop(name, None)
        self._data.open.pop(name, None)
        follow_up = FollowUp(0)
        end = EndedRun(name, facts.run_id, ending, now)
        if self._publishes_ends():
            add_end(self._data.ends, end)
            follow_up |= FollowUp.PUBLISH_END
        if facts.parent is not None:
            flow.filling.pop(name, None)
            add_end(self._data.returns, end)
            follow_up |= FollowUp.RETURN_END
        counted = not name.run and not facts.backfill_id and facts.parent is None
        if counted and count_failures(self._data, flow, now, name.cycle, ending):
            follow_up |= FollowUp.SETTLE_OUTBOX
        flow.retry_ms = 0
        if facts.backfill_id or flow.queued:
            follow_up |= FollowUp.ADVANCE_QUEUE
        was_paused = flow.pause is not None
        end_flow_that_is_over(flow, now, FLOW_AFTER[ending])
        if was_paused and flow.pause is None:
            look_again_at_all(flow, now)
        if facts.backfill_id:
            end_run(flow, facts.backfill_id, name, ending, now)
        return follow_up


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
    return structs.replace(
        old,
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
