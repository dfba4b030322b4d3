"""Watching cycles across lost connections."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime

from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.cycles import CycleRecord, cycle_from
from tradewind.client.following import reopened
from tradewind.client.messages import build

_TRACKED_CYCLES = 100
_Run = tuple[int, int]
_Rank = tuple[bool, int, datetime | None]
"""Whether a run has ended, its version, and when it ended."""


class _Seen:
    """What has been yielded of the cycles of one flow."""

    def __init__(self) -> None:
        self._newest: tuple[_Run, str] = (-1, 0), ""
        self._ranks: dict[_Run, tuple[str, _Rank]] = {}
        self._open: dict[_Run, str] = {}

    def is_news(self, record: CycleRecord, event_id: str) -> bool:
        """Remember a record; return whether it says more than the previous one.

        An end always does, whatever its version, and another end than the one known: a store that lost its last second
        gives out versions again. So does another run of the same number, of a flow that was deleted and registered
        again.
        """
        run = record.cycle, record.run
        rank = record.ended, record.version, record.end_time
        run_id, known = self._ranks.get(run, ("", rank))
        if run_id == record.run_id and (rank == known or (rank[:2] <= known[:2] and not record.ended)):
            return False
        self._ranks[run] = record.run_id, rank
        if record.ended:
            self._open.pop(run, None)
        else:
            self._open[run] = event_id
        last = self._newest[0][0]
        if run >= self._newest[0]:
            self._newest = run, event_id
        if record.cycle > last:
            first = record.cycle - _TRACKED_CYCLES
            kept = (each for each in self._ranks if each[0] >= first or each in self._open)
            self._ranks = {each: self._ranks[each] for each in kept}
        return True

    @property
    def position(self) -> str:
        """The event to continue after: that of the oldest cycle that may have changed since; "" before the first."""
        return self._open[min(self._open)] if self._open else self._newest[1]


async def watch(
    connection: Connection, flow_ids: Sequence[str], cycle: int | None
) -> AsyncGenerator[CycleRecord, None]:
    """Yield each state of the cycles of flows once, or of one cycle until it has ended.

    Continues where it was after a lost connection. Raises what `reopened` does.
    """
    seen = {flow_id: _Seen() for flow_id in flow_ids}

    def open_stream() -> AsyncGenerator[pb.WatchFlowResponse, None]:
        after = [known.position for known in seen.values() if known.position] if cycle is None else ()
        request = build(pb.WatchFlowRequest, flow_ids=flow_ids, cycle=cycle, after_event_ids=after)
        return connection.stream(connection.scheduler.WatchFlow, request)

    async with aclosing(reopened(connection, open_stream)) as responses:
        async for response in responses:
            for event in response.events:
                record = cycle_from(event.cycle)
                if seen[record.flow_id].is_news(record, event.event_id):
                    yield record
                if cycle is not None and record.ended:
                    return
