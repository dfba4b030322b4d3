"""Looks after open runs: submits runs that were not submitted, notices missed ends, stops runs that take too long."""

from collections.abc import Collection, Mapping, Sequence

import structlog
from msgspec import structs

from tradewind.scheduler.domain.chain_state import REASON, STOP, SUBMITTED, ChainState, StopRequest
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.handlers import HANDLERS_MS, Handlers, Phase
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.domain.submission import ComponentEvent, ComponentView, StopOrder
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.due_sets import OpenRuns
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import NodeTasks, PeerRefused
from tradewind.scheduler.use_cases.definitions import Definitions, PlannedRun
from tradewind.scheduler.use_cases.fold_events import FoldEvents, state_after_write
from tradewind.scheduler.use_cases.hand_over import HandOver
from tradewind.scheduler.use_cases.load_portion import portions
from tradewind.scheduler.use_cases.open_states import OpenStates
from tradewind.scheduler.use_cases.release_handlers import ReleaseHandlers
from tradewind.scheduler.use_cases.stop_orders import stop_all, stop_orders
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.server.clock import Clock
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import partition_of
from tradewind.server.reading import UnreadableLog

_STOP_AGAIN_MS = 2_000
_SOON_MS = 2_000

_log = structlog.get_logger(__name__)


class SuperviseRuns:
    """Level-triggered: it goes by the records of both services, whatever messages were lost.

    `compare_ms` is how often an open run is compared with the node task manager's view of it.
    """

    def __init__(
        self,
        open_runs: OpenRuns,
        states: ChainStateRepository,
        node_tasks: NodeTasks,
        definitions: Definitions,
        hand_over: HandOver,
        fold: FoldEvents,
        open_states: OpenStates,
        sub_flows: SubFlows,
        clock: Clock,
        compare_ms: int,
    ) -> None:
        self._open_runs = open_runs
        self._states = states
        self._node_tasks = node_tasks
        self._definitions = definitions
        self._hand_over = hand_over
        self._fold = fold
        self._open_states = open_states
        self._sub_flows = sub_flows
        self._clock = clock
        self._compare_ms = compare_ms
        self._release_handlers = ReleaseHandlers(node_tasks)
        self._unreadable = UnreadableLog(__name__)

    async def __call__(self, runs: Sequence[RunName], epochs: Epochs) -> None:
        """Look after runs that are due for a check; each becomes due again when there is reason to look.

        Raises PeerUnavailable when the node task manager is away; the runs are then due again soon.
        """
        async for loaded in portions(self._states, runs):
            await self._look_after(loaded, epochs)

    async def _look_after(self, loaded: Mapping[RunName, ChainState | None], epochs: Epochs) -> None:
        states: list[ChainState] = []
        waits_ms: dict[RunName, int] = {}
        for run, state in loaded.items():
            if state is None or is_terminal(state.status):
                await self._open_runs.forget(run)
                self._open_states.drop(run)
                # One that cannot be read stays open.
                waits_ms[run] = _SOON_MS
            else:
                states.append(state)
                waits_ms[run] = self._wait_ms(state, _SOON_MS)
        self._open_states.put(states)
        # Whatever goes wrong from here on, the runs are checked again.
        await self._open_runs.postpone(waits_ms)
        if not states:
            return
        overdue = await self._overdue_runs(states)
        states = [await self._mark_overdue(state, epochs) if state.name in overdue else state for state in states]
        # Repeated until the runs have ended.
        await stop_all(self._node_tasks, [order for state in states for order in self._stop_orders(state)])
        await self._compare(states, epochs)

    def _wait_ms(self, state: ChainState, preferred_ms: int) -> int:
        """Return in how many ms to check again: `preferred_ms`, or less if the run or its handlers are late before."""
        if not state.facts.deadline_ms or state.stop is not None:
            return preferred_ms
        if state.phase in (None, Phase.MAIN):
            return max(0, min(preferred_ms, state.facts.deadline_ms - self._clock.now_ms()))
        left_ms = state.facts.deadline_ms + HANDLERS_MS - self._clock.now_ms()
        return min(preferred_ms, left_ms if left_ms > 0 else _STOP_AGAIN_MS)

    async def _overdue_runs(self, states: Sequence[ChainState]) -> set[RunName]:
        """Return the runs whose deadline has passed, except those of which only handlers of the outcome have not ended.

        The others may have ended while no scheduler was running.
        """
        now_ms = self._clock.now_ms()
        late = [state for state in states if 0 < state.facts.deadline_ms <= now_ms and state.stop is None]
        if not late:
            return set()
        ended = {(state.name, state.facts.run_id): set(state.components) for state in late}
        for view in await self._node_tasks.components(late):
            if view.finished and (view.run, view.run_id) in ended:
                ended[view.run, view.run_id].add(view.component_id)
        return {state.name for state in late if _phase(state, ended[state.name, state.facts.run_id]) is Phase.MAIN}

    async def _mark_overdue(self, state: ChainState, epochs: Epochs) -> ChainState:
        """Mark an overdue run as stopping; return it as it was if somebody else has changed it."""
        seconds = (state.facts.deadline_ms - state.facts.start_ms) / 1000
        reason = f"the cycle took longer than its timeout of {seconds:g} s"
        stopping = structs.replace(state, stop=StopRequest("system", reason, self._clock.now_ms(), timeout=True))
        log = LogText(LogLevel.WARNING, f"Stopping: {reason}")
        return await self._write(RunUpdate(stopping, (STOP,), _STOP_AGAIN_MS, log), epochs) or state

    def _stop_orders(self, state: ChainState) -> list[StopOrder]:
        """Return the orders that stop a run that is to stop.

        Components that handle its outcome have some more time: from when it was asked to stop, or from its deadline if
        all others had ended by then.
        """
        now_ms = self._clock.now_ms()
        if state.stop is not None:
            return stop_orders(state, with_handlers=now_ms >= state.stop.at_ms + HANDLERS_MS)
        deadline_ms = state.facts.deadline_ms
        if not deadline_ms or state.phase in (None, Phase.MAIN) or now_ms < deadline_ms + HANDLERS_MS:
            return []
        reason = f"ran for more than {HANDLERS_MS // 60_000} minutes after the timeout of the cycle"
        return stop_orders(structs.replace(state, stop=StopRequest("system", reason, now_ms)), with_handlers=True)

    async def _release(self, state: ChainState, withheld: Collection[str]) -> None:
        """Release components that handle the outcome; if the node task manager refuses, the next check tries again."""
        if withheld:
            try:
                await self._release_handlers(state, withheld)
            except PeerRefused as error:
                _log.warning("handlers_not_released", run=str(state.name), error=error)

    async def _compare(self, states: Sequence[ChainState], epochs: Epochs) -> None:
        """Compare runs with the node task manager's view of their components."""
        seen: dict[RunName, list[ComponentView]] = {}
        for view in await self._node_tasks.components(states):
            seen.setdefault(view.run, []).append(view)
        missed_ends: list[ComponentEvent] = []
        unsubmitted: list[ChainState] = []
        unchanged: dict[RunName, int] = {}
        for state in states:
            views = [view for view in seen.get(state.name, ()) if view.run_id == state.facts.run_id]
            missed_ends += [_as_event(view) for view in views if view.finished]
            await self._release(state, {view.component_id for view in views if view.withheld})
            if len(views) < state.facts.component_count:
                unsubmitted.append(state)
                continue
            wait_ms = self._wait_ms(state, _STOP_AGAIN_MS if state.stop is not None else self._compare_ms)
            if state.submitted_ms and not state.reason:
                unchanged[state.name] = wait_ms
            else:
                # The reason why the run waited no longer applies.
                known = structs.replace(state, submitted_ms=state.submitted_ms or self._clock.now_ms(), reason="")
                fields = (SUBMITTED, REASON) if state.reason else (SUBMITTED,)
                await self._write(RunUpdate(known, fields, wait_ms), epochs)
        # Runs written meanwhile have set their own next check: an end may have let handlers of the outcome begin.
        changed = {
            state.name for state in states if (self._open_states.get(state.name) or state).version != state.version
        }
        await self._open_runs.postpone({run: wait_ms for run, wait_ms in unchanged.items() if run not in changed})
        await self._submit_again(unsubmitted, epochs)
        if missed_ends:
            _log.info("component_ends_reconciled", components=len(missed_ends))
            await self._fold(missed_ends, epochs)
        await self._check_sub_flows(states)
        if unsubmitted and self._hand_over.outage is not None:
            # However many runs wait, a peer that is away is tried with these alone before there is a pause.
            raise self._hand_over.outage

    async def _check_sub_flows(self, states: Sequence[ChainState]) -> None:
        """Look after runs that run cycles of other flows, and runs that run for nodes of other flows."""
        children = [state for state in states if state.facts.parent is not None]
        if children:
            await self._sub_flows.stop_unwanted(children)
        for state in states:
            if not state.facts.runs_flows:
                continue
            try:
                await self._sub_flows.check(state)
            except PeerRefused as error:
                # The other runs must not wait for this one; the next check tries again.
                _log.warning("sub_flows_not_supervised", run=str(state.name), error=error)

    async def _submit_again(self, states: Sequence[ChainState], epochs: Epochs) -> None:
        runs: list[PlannedRun] = []
        for state in states:
            try:
                planned = await self._definitions.of_run(state)
            except Unreadable as error:
                self._unreadable.note(error, run=str(state.name))
                continue
            if planned is None:
                reason = f"revision {state.facts.revision} of the flow is no longer on record"
                await self._fold.give_up(state, reason, epochs)
            else:
                runs.append(PlannedRun(state, planned))
        if runs:
            _log.info("cycles_submitted_again", runs=len(runs))
            await self._hand_over(runs)

    async def _write(self, update: RunUpdate, epochs: Epochs) -> ChainState | None:
        """Write an open run's state as the owner; None when somebody else has changed it: then look at it again."""
        (result,) = await self._states.update_many([update], epochs)
        if not result.ok:
            self._open_states.drop(update.state.name)
            return None
        state = state_after_write(update.state, result.version, result.end_ms)
        self._open_states.put((state,))
        return state


def _phase(state: ChainState, ended: Collection[str]) -> Phase:
    """Return the phase of a run whose components in `ended` have ended."""
    return (state.facts.handlers or Handlers()).phase(ended, state.facts.component_count)


def _as_event(view: ComponentView) -> ComponentEvent:
    return ComponentEvent(view.run, view.run_id, view.component_id, view.end, partition_of(view.run.flow_id), 0, "")
