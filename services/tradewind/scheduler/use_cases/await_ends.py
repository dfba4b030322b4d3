"""Waits until cycles have ended, on whichever replica they end."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import structlog

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.end_waiters import EndWait, EndWaiters
from tradewind.scheduler.use_cases.load_portion import portions
from tradewind.server.ending import end_tasks
from tradewind.server.faults import Unavailable
from tradewind.server.partitions import partition_of
from tradewind.server.side_tasks import SideTasks

_POLL_S = 5.0

_log = structlog.get_logger(__name__)


class AwaitEnds:
    """The replica that ends a run notifies its own callers at once; the change hub notifies callers elsewhere.

    Both can miss an end when the store is away; a check every 5 s finds it.
    """

    def __init__(
        self, waiters: EndWaiters, hub: ChangeHub, states: ChainStateRepository, owns: Callable[[int], bool]
    ) -> None:
        self._waiters = waiters
        self._hub = hub
        self._states = states
        self._owns = owns
        self._poller: asyncio.Task[None] | None = None
        self._lost: set[str] = set()
        """Flows that somebody waits for, and that another replica owns since."""
        self._following = SideTasks()

    def begin(self, states: Iterable[ChainState]) -> EndWait:
        """Begin to wait for runs before they are submitted, so that no end is missed; then `finish` or `abandon`."""
        return self._waiters.begin(states)

    async def begin_late(self, runs: Sequence[RunName]) -> EndWait:
        """Begin to wait for runs that may have ended already; those without a record are left out."""
        return await self._begin_checked([state for state in await self._states.load_many(runs) if state is not None])

    async def end_of(self, state: ChainState, timeout_s: float) -> ChainState:
        """Return a run once it has ended, as `finish` does."""
        if is_terminal(state.status):
            return state
        wait = await self._begin_checked([state])
        return (await self.finish([wait], timeout_s))[state.name]

    def renamed(self, run: RunName) -> None:
        """Stop waiting for a run that has been given another number; wait for the new number with `begin_late`."""
        self._waiters.run_removed(run)

    def abandon(self, waits: Iterable[EndWait]) -> None:
        """End waits whose caller has gone."""
        for wait in waits:
            self._waiters.forget(wait)

    async def finish(self, waits: Sequence[EndWait], timeout_s: float) -> dict[RunName, ChainState]:
        """Return the states of the runs once all have ended, or their last known states when the time is up.

        Raises Unavailable when this server shuts down meanwhile.
        """
        open_waits = [wait for wait in waits if not wait.future.done()]
        # Plain timers: for many short waits, asyncio.timeout costs ten times as much per wait.
        timers = [asyncio.get_running_loop().call_later(timeout_s, wait.release) for wait in open_waits]
        elsewhere: set[str] = set()
        try:
            if open_waits:
                self._ensure_polling()
                await self._listen_elsewhere(open_waits, elsewhere, timeout_s)
            for wait in open_waits:
                await wait.future
        finally:
            for timer in timers:
                timer.cancel()
            for flow_id in elsewhere:
                self._hub.leave(flow_id, self._on_change)
            self.abandon(waits)
        if any(wait.cancelled for wait in waits):
            raise Unavailable(
                "DRAINING",
                "this server is shutting down; the cycles go on: call again, with the same request_id if there is one",
            )
        if len(waits) == 1:
            return waits[0].states
        return {run: state for wait in waits for run, state in wait.states.items()}

    async def _listen_elsewhere(self, waits: Sequence[EndWait], listened: set[str], timeout_s: float) -> None:
        """Listen to flows in partitions that others own, then check the runs once: they may have ended already."""
        runs = [run for wait in waits for run in wait.states if not self._owns(partition_of(run.flow_id))]
        if not runs:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for flow_id in {run.flow_id for run in runs}:
                    listened.add(flow_id)
                    await self._hub.listen(flow_id, self._on_change)
                await self._check([run for run in runs if self._waiters.is_awaited(run)])

    def _ensure_polling(self) -> None:
        if self._poller is None:
            self._poller = asyncio.get_running_loop().create_task(self._poll())

    def partitions_changed(self) -> None:
        """Have the change hub tell of runs that are awaited and whose partitions belong to other replicas now."""
        if self._poller is not None:
            self._following.begin(self._follow_lost())

    async def _follow_lost(self) -> None:
        runs = [run for run in self._waiters.pending() if not self._owns(partition_of(run.flow_id))]
        try:
            for flow_id in {run.flow_id for run in runs} - self._lost:
                self._lost.add(flow_id)
                await self._hub.listen(flow_id, self._on_change)
            await self._check([run for run in runs if self._waiters.is_awaited(run)])
        except Exception as error:
            _log.warning("ends_not_read", error=error)
        self._leave_ended()

    def _leave_ended(self) -> None:
        for flow_id in self._lost - {run.flow_id for run in self._waiters.pending()}:
            self._lost.discard(flow_id)
            self._hub.leave(flow_id, self._on_change)

    def drain(self) -> None:
        """End every wait; the cycles go on."""
        self._waiters.cancel_all()

    async def stop(self) -> None:
        """Stop the checks; callers that still wait are not notified any more."""
        await self._following.end()
        if self._poller is not None:
            await end_tasks([self._poller])

    async def _begin_checked(self, states: Iterable[ChainState]) -> EndWait:
        """Begin to wait, then check once: the runs may have ended since they were read."""
        wait = self._waiters.begin(states)
        try:
            await self._check([run for run in wait.states if self._waiters.is_awaited(run)])
        except BaseException:
            self.abandon([wait])
            raise
        return wait

    def _on_change(self, flow_id: str, state: ChainState | None) -> None:
        if state is None:
            self._waiters.flow_removed(flow_id)
        elif is_terminal(state.status):
            self._waiters.run_ended(state)

    async def _poll(self) -> None:
        try:
            while pending := self._waiters.pending():
                await asyncio.sleep(_POLL_S)
                still_waiting = [run for run in pending if self._waiters.is_awaited(run)]
                try:
                    await self._check(still_waiting)
                except Exception as error:
                    _log.warning("ends_not_read", error=error)
                self._leave_ended()
        finally:
            self._poller = None

    async def _check(self, runs: Sequence[RunName]) -> None:
        async for loaded in portions(self._states, runs):
            for run, state in loaded.items():
                if state is None:
                    self._waiters.run_removed(run)
                elif is_terminal(state.status):
                    self._waiters.run_ended(state)
