"""Reports changes to the cycles of flows as they happen."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.cycles import CycleRecords
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.change_hub import ChangeHub
from tradewind.scheduler.use_cases.faults import cycle_not_found
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.watch_backlog import Backlog
from tradewind.scheduler.use_cases.watch_pace import WatchPace
from tradewind.scheduler.use_cases.whole_flows import pieces
from tradewind.server.faults import Unavailable

_REMEMBERED = 10_000
_CAUGHT_UP = 1000
_AT_ONCE = 100


class LastSeen(NamedTuple):
    """The last state of a flow that a watcher has received: a run, its version, and when it ended, 0 while it ran."""

    run: RunName
    version: int
    end_ms: int


class WatchFlows:
    """Watchers listen to the change hub; a slow watcher gets only the newest state of each run: queues stay bounded.

    While much changes for many watchers, each gets several changes in one message.
    """

    def __init__(self, flows: FlowRecords, cycles: CycleRecords, read: ReadFlows, hub: ChangeHub) -> None:
        self._flows = flows
        self._cycles = cycles
        self._read = read
        self._hub = hub
        self._draining = asyncio.Event()
        self._watches: set[_Watch] = set()
        self._pace = WatchPace()

    def drain(self) -> None:
        """End every watch, and end new watches at once."""
        self._draining.set()
        for watch in self._watches:
            watch.ready.set()

    async def __call__(
        self, flow_ids: Sequence[str], cycle: int | None, after: Mapping[str, LastSeen]
    ) -> AsyncIterator[list[ChainState]]:
        """Yield the state of the named cycle, or the latest cycle, of each flow, then every change.

        For a flow in `after`, it first yields the states that have come since, within about the newest 1000 runs. A
        named cycle may be still to come. The watch ends when the named cycle of every flow has ended, or every flow is
        gone. Raises NotFound for an unknown flow and for a cycle that is no longer on record, Unavailable when this
        server shuts down.
        """
        latest: dict[str, int] = {}
        for some in pieces(flow_ids):
            for flow_id, record in zip(some, await self._flows.find(some), strict=True):
                if record is None:
                    raise await self._read.not_found(flow_id)
                latest[flow_id] = record.last_cycle
        watch = _Watch(set(flow_ids), cycle)
        self._watches.add(watch)
        try:
            for flow_id in watch.open_flows:
                await self._hub.listen(flow_id, watch.receive)
            first = await self._first(latest, cycle, after)
            self._hub.add_known(first)
            watch.begin(first)
            while True:
                if watch.has_changes:
                    await self._rest(self._pace.next_in())
                    yield watch.pop()
                elif not watch.open_flows:
                    return
                elif self._draining.is_set():
                    raise Unavailable("DRAINING", "this server is shutting down; watch again")
                else:
                    watch.ready.clear()
                    await watch.ready.wait()
        finally:
            self._watches.discard(watch)
            for flow_id in set(flow_ids):
                self._hub.leave(flow_id, watch.receive)

    async def _first(
        self, latest: Mapping[str, int], cycle: int | None, after: Mapping[str, LastSeen]
    ) -> list[ChainState]:
        found: list[ChainState] = []
        for some in pieces(list(latest)):
            reads = (self._first_of(flow_id, latest[flow_id], cycle, after.get(flow_id)) for flow_id in some)
            for states in await asyncio.gather(*reads):
                found += states
        return found

    async def _first_of(
        self, flow_id: str, last_cycle: int, cycle: int | None, last_seen: LastSeen | None
    ) -> list[ChainState]:
        if last_seen is not None:
            return await self._since(last_seen)
        if cycle is None:
            return await self._cycles.newest(flow_id, None, 1)
        run = await self._cycles.latest_run(flow_id, cycle)
        if run is not None:
            return [await self._read.cycle(flow_id, run.cycle, run.run)]
        if cycle <= last_cycle:
            raise cycle_not_found(flow_id, cycle)
        return []

    async def _since(self, last_seen: LastSeen) -> list[ChainState]:
        """Return the states since `last_seen`, oldest first; of a flow registered again, only its latest cycle."""
        flow_id, cycle, _ = last_seen.run
        found = await self._cycles.newest(flow_id, None, 1)
        while found and found[-1].name.cycle >= cycle and len(found) < _CAUGHT_UP:
            older = await self._cycles.newest(flow_id, found[-1].name, _AT_ONCE)
            since = [state for state in older if state.name.cycle >= cycle]
            found += since
            if len(since) < _AT_ONCE:
                break
        return [state for state in reversed(found) if (state.name, state.version, state.end_ms) != last_seen]

    async def _rest(self, pause_s: float) -> None:
        """Let changes collect for a while, unless the server drains."""
        if pause_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._draining.wait()


class _Watch:
    """What one watcher has received and has still to receive. `open_flows` are the flows from which more may come."""

    def __init__(self, flow_ids: set[str], cycle: int | None) -> None:
        self.open_flows = flow_ids
        self.ready = asyncio.Event()
        self._cycle = cycle
        self._ranks: dict[tuple[RunName, str], tuple[bool, int, int]] = {}
        self._backlog = Backlog()
        self._early: list[tuple[str, ChainState | None]] | None = []

    def begin(self, states: Sequence[ChainState]) -> None:
        """Take the first states, then the changes received while they were read."""
        early, self._early = self._early or [], None
        for state in states:
            self.receive(state.name.flow_id, state)
        for flow_id, changes in early:
            self.receive(flow_id, changes)

    def receive(self, flow_id: str, state: ChainState | None) -> None:
        """Take a change, unless it is already known or not wanted."""
        if self._early is not None:
            self._early.append((flow_id, state))
            return
        if state is None:
            self.open_flows.discard(flow_id)
            self.ready.set()
            return
        run = state.name
        if self._cycle is not None and run.cycle != self._cycle:
            return
        # A flow that was deleted and registered again numbers its cycles from 0 again.
        key, rank = (run, state.facts.run_id), state.rank
        known = self._ranks.get(key, (False, 0, 0))
        if rank == known or (rank < known and not is_terminal(state.status)):
            return
        self._ranks[key] = rank
        if len(self._ranks) > _REMEMBERED:
            # Half of them at once: to find the first entry of a dict, those removed before it are passed one by one.
            self._ranks = dict(islice(self._ranks.items(), _REMEMBERED // 2, None))
        self._backlog.add(state)
        if self._cycle is not None and is_terminal(state.status):
            self.open_flows.discard(flow_id)
        self.ready.set()

    @property
    def has_changes(self) -> bool:
        """Whether there are states to send."""
        return bool(self._backlog)

    def pop(self) -> list[ChainState]:
        """Return the states to send now, as many as one message holds."""
        return self._backlog.pop()
