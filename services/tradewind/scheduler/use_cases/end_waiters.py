"""Callers that wait for cycles to end."""

import asyncio
from collections.abc import Iterable

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName


class EndWait:
    """One caller's wait for some runs: one future for all of them. `states` holds their newest known states."""

    __slots__ = ("cancelled", "future", "missing", "states")

    def __init__(self, states: dict[RunName, ChainState], future: "asyncio.Future[None]") -> None:
        self.states = states
        self.future = future
        self.missing = len(states)
        self.cancelled = False

    def settle(self, run: RunName, state: ChainState | None) -> None:
        """Note the end of one run; `state` is None when its record is gone."""
        if state is not None:
            self.states[run] = state
        self.missing -= 1
        if not self.missing:
            self.release()

    def release(self) -> None:
        """Let the caller go on, whatever is still missing."""
        if not self.future.done():
            self.future.set_result(None)


class EndWaiters:
    """All waits of this process, by run."""

    def __init__(self) -> None:
        self._waits: dict[RunName, list[EndWait]] = {}
        self._draining = False

    def begin(self, states: Iterable[ChainState]) -> EndWait:
        """Wait for those of these runs that are open; call `forget` when the caller stops waiting."""
        by_run = {state.name: state for state in states}
        wait = EndWait(by_run, asyncio.get_running_loop().create_future())
        for run, state in by_run.items():
            if is_terminal(state.status):
                wait.missing -= 1
            else:
                self._waits.setdefault(run, []).append(wait)
        if not wait.missing:
            wait.future.set_result(None)
        elif self._draining:
            self.cancel_all()
        return wait

    def forget(self, wait: EndWait) -> None:
        """End a wait whose caller has gone."""
        if not wait.missing:
            return
        for run in wait.states:
            waits = self._waits.get(run)
            if waits is not None and wait in waits:
                waits.remove(wait)
                if not waits:
                    del self._waits[run]

    def cancel_all(self) -> None:
        """End all waits, and any that begin later, even if runs are missing: this process is shutting down."""
        self._draining = True
        for wait in [wait for waits in self._waits.values() for wait in waits]:
            if not wait.future.done():
                wait.cancelled = True
                wait.release()
        self._waits.clear()

    def is_awaited(self, run: RunName) -> bool:
        """Say whether anybody waits for this run."""
        return run in self._waits

    def pending(self) -> list[RunName]:
        """Return the runs that somebody waits for."""
        return list(self._waits)

    def run_ended(self, state: ChainState) -> None:
        """Notify the waiters for a run that it has ended."""
        for wait in self._waits.pop(state.name, ()):
            wait.settle(state.name, state)

    def flow_removed(self, flow_id: str) -> None:
        """Notify the waiters for runs of a flow that it has been deleted."""
        for run in [run for run in self._waits if run.flow_id == flow_id]:
            self.run_removed(run)

    def run_removed(self, run: RunName) -> None:
        """Notify the waiters for a run that its record is gone."""
        for wait in self._waits.pop(run, ()):
            wait.settle(run, None)
