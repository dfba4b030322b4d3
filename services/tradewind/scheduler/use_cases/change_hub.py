"""Brings changes to runs, whichever replica makes them, to the listeners in this process."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.changes import ChangeFeed, RunChange
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.server.ending import end_tasks
from tradewind.server.partitions import partition_of

_NEWEST_READ = 20
_READ_AT_ONCE = 500
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)

Listener = Callable[[str, ChainState | None], None]
"""Receives the id of a flow and the new state of one of its runs, None when the flow is gone. Must not block."""


class ChangeHub:
    """Keeps one subscription for each partition that anybody listens to.

    A state is read from the store only when it does not follow from the change itself.
    """

    def __init__(self, feed: ChangeFeed, cycles: CycleRecords, states: ChainStateRepository) -> None:
        self._feed = feed
        self._cycles = cycles
        self._states = states
        self._listeners: dict[str, Counter[Listener]] = {}
        self._subscribed: dict[int, Callable[[], None]] = {}
        self._subscribing = asyncio.Lock()
        self._known: dict[str, dict[RunName, ChainState]] = {}
        """The open runs of each flow that has listeners."""
        self._pending: dict[RunName, None] = {}
        self._loading: asyncio.Task[None] | None = None

    async def listen(self, flow_id: str, listener: Listener) -> None:
        """Send every change to the flow's runs to `listener` from now on, each once however often it listens.

        It must `leave` as often as it has called this.
        """
        self._listeners.setdefault(flow_id, Counter())[listener] += 1
        partition = partition_of(flow_id)
        async with self._subscribing:
            if partition not in self._subscribed:
                self._subscribed[partition] = await self._feed.subscribe(
                    partition, self._on_changes, lambda: self._resync(partition)
                )

    def leave(self, flow_id: str, listener: Listener) -> None:
        """Stop listening to a flow."""
        listeners = self._listeners.get(flow_id)
        if listeners is None:
            return
        listeners[listener] -= 1
        if listeners[listener] <= 0:
            del listeners[listener]
        if listeners:
            return
        del self._listeners[flow_id]
        self._known.pop(flow_id, None)
        partition = partition_of(flow_id)
        if partition in self._subscribed and all(partition_of(other) != partition for other in self._listeners):
            self._subscribed.pop(partition)()

    def add_known(self, states: Sequence[ChainState]) -> None:
        """Note states that a listener has read itself, so that changes to them need no further reading."""
        for state in states:
            if self._is_news(state):
                self._remember(state)

    async def stop(self) -> None:
        """End all subscriptions."""
        for end in self._subscribed.values():
            end()
        self._subscribed.clear()
        if self._loading is not None:
            await end_tasks([self._loading])

    def _on_changes(self, changes: Sequence[RunChange]) -> None:
        for change in changes:
            run = change.run
            if run.flow_id not in self._listeners:
                continue
            if run.cycle < 0:
                self._known.pop(run.flow_id, None)
                self._notify(run.flow_id, None)
                continue
            if run in self._pending:
                continue
            before = self._state_of(run)
            # A change that is not newer is already known, unless the store has lost the known state: so read the run.
            state = change.state_after(before) if before is None or before.version < change.version else None
            if state is None:
                self._load(run)
            else:
                self._publish(state)

    def _publish(self, state: ChainState) -> None:
        self._remember(state)
        self._notify(state.name.flow_id, state)

    def _remember(self, state: ChainState) -> None:
        known = self._known.setdefault(state.name.flow_id, {})
        if is_terminal(state.status):
            known.pop(state.name, None)
        else:
            known[state.name] = state

    def _state_of(self, run: RunName) -> ChainState | None:
        return self._known.get(run.flow_id, {}).get(run)

    def _is_news(self, state: ChainState) -> bool:
        """Say whether somebody listens to the flow of a state that is newer than the known one."""
        before = self._state_of(state.name)
        return state.name.flow_id in self._listeners and (before is None or before.rank < state.rank)

    def _notify(self, flow_id: str, state: ChainState | None) -> None:
        for listener in list(self._listeners.get(flow_id, ())):
            listener(flow_id, state)

    def _resync(self, partition: int) -> None:
        """After a gap, read the runs known as open, and the newest runs of each flow."""
        for flow_id in self._listeners:
            if partition_of(flow_id) == partition:
                for run in (*self._known.get(flow_id, ()), RunName(flow_id, -1)):
                    self._load(run)

    def _load(self, run: RunName) -> None:
        """Read a run as soon as possible; cycle -1 stands for the newest runs of the flow."""
        self._pending[run] = None
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._read_pending())

    async def _read_pending(self) -> None:
        try:
            while self._pending:
                # Removed before they are read: the read may miss a change that is received meanwhile.
                wanted = list(self._pending)[:_READ_AT_ONCE]
                for run in wanted:
                    del self._pending[run]
                try:
                    found = await self._states.load_many([run for run in wanted if run.cycle >= 0])
                    for run in wanted:
                        if run.cycle < 0:
                            found += await self._cycles.newest(run.flow_id, None, _NEWEST_READ)
                except Exception as error:
                    _log.warning("changes_not_read", error=error)
                    self._pending.update(dict.fromkeys(wanted))
                    await asyncio.sleep(_RETRY_S)
                    continue
                for state in sorted((state for state in found if state is not None), key=lambda state: state.name):
                    if self._is_news(state):
                        self._publish(state)
        finally:
            self._loading = None
