"""Folds the node task manager's events about components into chain states, and ends the runs that are done."""

from collections.abc import Iterable, Mapping

from tradewind.scheduler.domain.chain_state import (
    ChainState,
    ComponentEnd,
    FollowUp,
    UpdateOutcome,
    UpdateResult,
    component_field,
)
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.ending import ended_state, given_up_state
from tradewind.scheduler.domain.handlers import Phase
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.submission import ComponentEvent
from tradewind.scheduler.metrics import count_ended
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.owning import NOT_OWNER, Epochs
from tradewind.scheduler.ports.waking import WakeOwner, Work
from tradewind.scheduler.use_cases.end_waiters import EndWaiters
from tradewind.scheduler.use_cases.load_portion import load_portion
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.backoff import Backoff
from tradewind.server.partitions import partition_of

_BACKOFF_S = (0.002, 0.1)
_WORK_OF = {
    FollowUp.ADVANCE_QUEUE: Work.WAITING,
    FollowUp.SETTLE_OUTBOX: Work.OUTBOX,
    FollowUp.PUBLISH_END: Work.ENDS,
    FollowUp.RETURN_END: Work.RETURNS,
}

Ends = dict[str, ComponentEnd]
NewEnds = dict[tuple[RunName, str], Ends]
"""The new ends of components of each run, by its name and run_id."""


class FoldEvents:
    """Writes one compare-and-set per run, however many events it has; the end of the run is part of the same write."""

    def __init__(
        self,
        states: ChainStateRepository,
        open_states: OpenStates,
        waiters: EndWaiters,
        wake: WakeOwner,
        traces: TraceRuns,
    ) -> None:
        self._states = states
        self._open_states = open_states
        self._waiters = waiters
        self._wake = wake
        self._traces = traces

    async def __call__(self, events: Iterable[ComponentEvent], epochs: Epochs) -> set[int]:
        """Fold events of partitions that the caller owns; return the partitions that it has lost.

        Returns when every event is on record, or belongs to a run that is gone or has ended. The caller may then
        acknowledge all events except those of lost partitions. Conflicts are retried with jittered backoff. Errors of
        the store pass through; folding the same events again is harmless.
        """
        new_ends: NewEnds = {}
        for event in events:
            new_ends.setdefault((event.run, event.run_id), {})[event.component_id] = event.end
        lost: set[int] = set()
        backoff = Backoff(*_BACKOFF_S)
        while new_ends:
            states = await self._load_states(new_ends)
            portion = {key: new_ends.pop(key) for key in list(new_ends) if key[0] in states}
            conflicting = await self._fold_once(portion, states, epochs, lost)
            if conflicting:
                new_ends.update(conflicting)
                await backoff.pause()
        return lost

    async def _fold_once(
        self, new_ends: NewEnds, states: Mapping[RunName, ChainState | None], epochs: Epochs, lost: set[int]
    ) -> NewEnds:
        """Try each run once and return those in conflict; their states are forgotten, so that they are read again."""
        updates: list[RunUpdate] = []
        for (run, run_id), ends in new_ends.items():
            state = states[run]
            if state is None or state.facts.run_id != run_id or is_terminal(state.status):
                continue
            update = update_with(state, ends)
            if update is not None:
                updates.append(update)
        conflicting: NewEnds = {}
        for update, result in zip(updates, await self._states.update_many(updates, epochs), strict=True):
            state = update.state
            if result.outcome is UpdateOutcome.OK:
                self.after_write(state, result)
                if update.check_in_ms == 0:
                    self._wake(Work.RUNS, state.name.flow_id, 0)
                continue
            self._open_states.drop(state.name)
            if result.outcome is UpdateOutcome.CONFLICT:
                key = (state.name, state.facts.run_id)
                conflicting[key] = new_ends[key]
            elif result.outcome is UpdateOutcome.OVERTAKEN:
                lost.add(partition_of(state.name.flow_id))
        return conflicting

    def after_write(self, state: ChainState, result: UpdateResult) -> None:
        """Do what follows a write of this state: remember the state, or count the end and notify callers that wait.

        An end also wakes whoever has work to do because of it.
        """
        if not result.end_ms:
            self._open_states.put((state_after_write(state, result.version, 0),))
            return
        if result.follow_up:
            for follow_up, work in _WORK_OF.items():
                if result.follow_up & follow_up:
                    self._wake(work, state.name.flow_id, 0)
        self._open_states.drop(state.name)
        count_ended(state, result.end_ms)
        self._traces.record_end(state)
        if self._waiters.is_awaited(state.name):
            self._waiters.run_ended(state_after_write(state, result.version, result.end_ms))

    async def give_up(self, state: ChainState, reason: str, epochs: Epochs = NOT_OWNER) -> ChainState:
        """End, as failed, a run that can never be carried out; return its state after that.

        If somebody else has changed the run, nothing is written and `state` is returned: the next check sees to it.
        """
        final, fields = given_up_state(state, reason)
        (result,) = await self._states.update_many([RunUpdate(final, fields)], epochs)
        if not result.ok:
            self._open_states.drop(state.name)
            return state
        self.after_write(final, result)
        return state_after_write(final, result.version, result.end_ms)

    async def _load_states(self, runs: Iterable[tuple[RunName, str]]) -> dict[RunName, ChainState | None]:
        """Return the states of runs, None for those that are gone; of those to be read, only a portion.

        A remembered state that belongs to another run of the same name is not used.
        """
        states: dict[RunName, ChainState | None] = {}
        unknown: list[RunName] = []
        for run, run_id in runs:
            state = self._open_states.get(run)
            if state is None or state.facts.run_id != run_id:
                unknown.append(run)
            else:
                states[run] = state
        if unknown:
            for run in unknown:
                states.pop(run, None)
            states.update(zip(unknown, await load_portion(self._states, unknown), strict=False))
        return states


def update_with(state: ChainState, ends: Ends) -> RunUpdate | None:
    """Return the write that adds these ends to a state, None when the state has them all."""
    new = ends if not state.components else {key: end for key, end in ends.items() if key not in state.components}
    if not new:
        return None
    merged = ChainState(
        state.name,
        state.facts,
        state.version,
        state.status,
        {**state.components, **new} if state.components else new,
        state.reason,
        state.stop,
        state.submitted_ms,
        notes=state.notes,
    )
    fields = [component_field(component_id) for component_id in new]
    if not merged.all_finished:
        if merged.facts.handlers is not None and merged.phase is not Phase.MAIN:
            # The components that handle the outcome are to be released.
            return RunUpdate(merged, fields, check_in_ms=0)
        return RunUpdate(merged, fields)
    final, end_fields = ended_state(merged)
    return RunUpdate(final, (*fields, *end_fields))


def state_after_write(state: ChainState, version: int, end_ms: int) -> ChainState:
    """Return a state as it is after the store has written it."""
    return ChainState(
        state.name,
        state.facts,
        version,
        state.status,
        state.components,
        state.reason,
        state.stop,
        state.submitted_ms,
        end_ms,
        state.notes,
    )
