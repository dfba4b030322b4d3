"""Watching cycles across lost connections."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.cycles import CycleRecord, cycle_from
from tradewind.client.errors import Unavailable

PATIENCE = 60.0
"""Seconds for which a watch that was connected once tries to get its connection back, at least."""

_KEPT_CYCLES = 100

History = Callable[[str], AsyncIterator[CycleRecord]]
"""Lists the cycles of a flow, the newest first."""


class _Seen:
    """What was told of the cycles of one flow."""

    def __init__(self) -> None:
        self.last = -1
        self._versions: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()

    def is_news(self, record: CycleRecord) -> bool:
        """Remember a record; return whether it says more than the one before."""
        run = (record.cycle, record.run)
        if record.version <= self._versions.get(run, -1):
            return False
        self._versions[run] = record.version
        if record.ended:
            self._open.discard(run)
        else:
            self._open.add(run)
        if record.cycle > self.last:
            self.last = record.cycle
            for old in [
                each for each in self._versions if each[0] < self.last - _KEPT_CYCLES and each not in self._open
            ]:
                del self._versions[old]
        return True

    def may_have_missed(self, record: CycleRecord) -> bool:
        """Return whether more than `record`, the newest of its flow, can have happened since the last that was told."""
        return record.cycle > self.last + 1 or bool(self._open - {(record.cycle, record.run)})

    @property
    def floor(self) -> int:
        """The lowest cycle that may have changed since."""
        return min((cycle for cycle, _ in self._open), default=self.last + 1)


async def watch(
    connection: Connection, history: History, flow_ids: Sequence[str], cycle: int | None
) -> AsyncGenerator[CycleRecord, None]:
    """Yield each state of the cycles of flows once, or of one cycle until it has ended.

    After a lost connection the scheduler tells the newest cycle of each flow only; those between are looked up.
    Raises Unavailable when the scheduler stays away, and whatever else it answers.
    """
    request = pb.WatchFlowRequest(flow_ids=flow_ids, cycle=cycle)
    seen = {flow_id: _Seen() for flow_id in flow_ids}
    resumed: set[str] = set()
    patience = connection.to_scheduler.patience
    heard = time.monotonic()
    pause = 0.05
    while True:
        try:
            stream = connection.to_scheduler.stream(connection.scheduler.WatchFlow, request)
            async with aclosing(stream) as responses:
                async for response in responses:
                    heard, patience, pause = time.monotonic(), max(PATIENCE, patience), 0.05
                    for event in response.events:
                        record = cycle_from(event.cycle)
                        known = seen.setdefault(record.flow_id, _Seen())
                        if record.flow_id in resumed:
                            resumed.discard(record.flow_id)
                            if cycle is None and known.may_have_missed(record):
                                for missed in await _since(history(record.flow_id), known.floor):
                                    if known.is_news(missed):
                                        yield missed
                        if known.is_news(record):
                            yield record
                        if cycle is not None and record.ended:
                            return
        except Unavailable as error:
            if time.monotonic() - heard >= patience:
                raise
            pause = max(pause, error.retry_after)
        resumed = set(seen)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2.0, pause * 2)


async def _since(cycles: AsyncIterator[CycleRecord], floor: int) -> list[CycleRecord]:
    """Return the cycles from number `floor` on, the oldest first."""
    found: list[CycleRecord] = []
    async for record in cycles:
        if record.cycle < floor:
            break
        found.append(record)
    return found[::-1]
