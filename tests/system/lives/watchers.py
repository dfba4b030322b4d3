"""Watchers of flows in a life: each follows a flow through lost connections and restarts of servers.

In the end:

1. Each has got the states of a run in order: versions rise, and nothing follows an end.
2. Each has got the end of every run on record that began after the watch did, or, if the flow was deleted and
   registered again meanwhile, after the first that it has got since.

Where the store of the schedulers loses writes, 1 does not hold: versions are given out again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from tests.system.lives.world import World
from tradewind.client import Client, CycleRecord, TradewindError
from tradewind.scheduler.domain.cycle_status import is_terminal
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import Flow

LEAD_MS = 1000

Run = tuple[RunName, str]


class Watchers:
    """One watcher for each flow."""

    def __init__(self, client: Client, flow_ids: Sequence[str]) -> None:
        self._client = client
        self._latest: dict[str, dict[Run, CycleRecord]] = {flow_id: {} for flow_id in flow_ids}
        """What came last of each run, for each flow, since the watch began."""
        self._came: dict[Run, datetime] = {}
        """When something of each run came first."""
        self._disorder: list[str] = []

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Watch."""
        watching = [asyncio.create_task(self._watch(flow_id)) for flow_id in self._latest]
        try:
            yield
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    def violations(self, world: World, *, loses_writes: bool) -> Iterator[str]:
        """Yield a sentence for everything that is not as it must be."""
        if not loses_writes:
            yield from self._disorder
        for flow_id, latest in self._latest.items():
            if flow := world.stores.data.flows.get(flow_id):
                yield from self._missed(flow, latest)

    def _missed(self, flow: Flow, latest: Mapping[Run, CycleRecord]) -> Iterator[str]:
        came = [
            self._came[id] for id, each in latest.items() if each.start_time and _ms(each.start_time) >= flow.created_ms
        ]
        for name, run in flow.runs.items():
            state = run.state
            # Cycles are prepared a moment ahead of their time.
            if not came or state.facts.start_ms < _ms(min(came)) + LEAD_MS or not is_terminal(state.status):
                continue
            last = latest.get((name, state.facts.run_id))
            if last is None or last.status.value != state.status.value:
                yield f"the watcher of {flow.flow_id} got {_short(last)} last of {name}, which is {state.status}"

    async def _watch(self, flow_id: str) -> None:
        while True:
            self._latest[flow_id].clear()
            # It ends when the flow is gone, or no server is there for long.
            with suppress(TradewindError):
                async for record in self._client.watch_flows(flow_id):
                    self._take(record)
            await asyncio.sleep(1)

    def _take(self, record: CycleRecord) -> None:
        # A run that is begun again under another number keeps its id.
        run = RunName(record.flow_id, record.cycle, record.run), record.run_id
        before = self._latest[record.flow_id].get(run)
        if before and (before.ended or before.version >= record.version):
            self._disorder.append(f"the watcher of {record.flow_id} got {_short(record)} after {_short(before)}")
        self._latest[record.flow_id][run] = record
        self._came.setdefault(run, datetime.fromtimestamp(time.time(), UTC))


def _ms(time: datetime) -> float:
    return time.timestamp() * 1000


def _short(record: CycleRecord | None) -> str:
    return f"{record.cycle}:{record.run} {record.status} in version {record.version}" if record else "nothing"
