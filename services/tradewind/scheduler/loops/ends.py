"""Takes in what the node task manager says of components, and looks after open runs."""

import asyncio
import random
from collections.abc import Sequence

import structlog

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.domain.submission import ComponentEvent
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.ports.cycles import OpenRuns
from tradewind.scheduler.ports.peers import EventStream, NodeTasks, PeerUnavailable
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.look_after_runs import LookAfterRuns
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.sink_outputs import SinkOutputs
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.server.clock import Clock

_FOLD_BACKOFF_S = (0.05, 2.0)
_HEARD_TRIES = 8
_ACK_S = 0.05
_RUNS_AT_ONCE = 500
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class _Acks:
    """Acknowledges what is on record, all of 50 ms in one message: nobody waits for it, and it costs a script there."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._stream: EventStream | None = None
        self._last: dict[tuple[int, int], Event] = {}

    def add(self, stream: EventStream, events: Sequence[Event]) -> None:
        """Acknowledge these soon, if the stream that they came on lasts until then."""
        if stream is not self._stream:
            self._stream, self._last = stream, {}
        if events and not self._last:
            self._background.begin(self._send(stream), "acknowledgement of events")
        self._last.update(((event.partition, event.shard), event) for event in events)

    async def _send(self, stream: EventStream) -> None:
        await asyncio.sleep(_ACK_S)
        if stream is self._stream:
            last, self._last = self._last, {}
            await stream.acknowledge(last.values())


def event_loop(
    node_tasks: NodeTasks,
    fold: FoldEvents,
    outputs: SinkOutputs,
    own: OwnPartitions,
    background: Background,
    sub_flows: SubFlows,
) -> OwnedStream[Event, EventStream]:
    """Return the loop that folds events into chain states, begins sub-flows, and acknowledges what is on record."""

    acks = _Acks(background)

    async def work(stream: EventStream, events: list[Event]) -> None:
        ends = [event for event in events if isinstance(event, ComponentEvent)]
        asked = [event for event in events if isinstance(event, SubFlowEvent) and own.owns(event.partition)]
        if asked:
            (folded, lost), _ = await asyncio.gather(fold_all(ends), heard(sub_flows, asked))
        else:
            folded, lost = await fold_all(ends)
        own.lose(lost, "a write was refused")
        # What is not owned just now may be again by then: only what was seen to is acknowledged.
        done = {ComponentEvent: folded - lost, SubFlowEvent: {event.partition for event in asked} - lost}
        acks.add(stream, [event for event in events if event.partition in done[type(event)]])

    async def fold_all(events: list[ComponentEvent]) -> tuple[set[int], set[int]]:
        """Return the partitions whose events were folded, and those that turned out to be lost."""
        delay_s = _FOLD_BACKOFF_S[0]
        for event in events:
            outputs.notice(event)
        while True:
            mine = [event for event in events if own.owns(event.partition)]
            try:
                return {event.partition for event in mine}, await fold(mine, own.epochs)
            except Exception as error:
                # Nothing is acknowledged before it is on record, so there is nothing else to be done but this.
                _log.warning("events_not_folded", events=len(mine), error=repr(error))
                await asyncio.sleep(random.uniform(0.5, 1.0) * delay_s)
                delay_s = min(2 * delay_s, _FOLD_BACKOFF_S[1])

    return OwnedStream("events", node_tasks.events, lambda stream: stream.receive(), work, own)


async def heard(sub_flows: SubFlows, events: list[SubFlowEvent]) -> None:
    """Do what events ask for; what cannot be done for long is left to those who look after open runs."""
    delay_s = _FOLD_BACKOFF_S[0]
    for _ in range(_HEARD_TRIES):
        try:
            await sub_flows.heard(events)
            return
        except Exception as error:
            _log.warning("sub_flows_wait", events=len(events), error=repr(error))
            await asyncio.sleep(random.uniform(0.5, 1.0) * delay_s)
            delay_s = min(2 * delay_s, _FOLD_BACKOFF_S[1])


class OpenRunsLoop:
    """Sleeps until the earliest check of any open run; otherwise looks every `look_s` in case a wake-up was lost."""

    def __init__(
        self,
        open_runs: OpenRuns,
        look_after: LookAfterRuns,
        own: OwnPartitions,
        alarm: Alarm,
        clock: Clock,
        look_s: float,
    ) -> None:
        self._open_runs = open_runs
        self._look_after = look_after
        self._own = own
        self._alarm = alarm
        self._clock = clock
        self._look_s = look_s
        own.on_change(lambda: alarm.ring_in(0))

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            wait_s = self._look_s
            try:
                wait_s = min(wait_s, await self._work())
            except PeerUnavailable as error:
                _log.warning("open_runs_wait", error=error.detail)
                wait_s = _RETRY_S
            except Exception as error:
                _log.warning("open_runs_not_looked_after", error=repr(error))
                wait_s = _RETRY_S
            await self._alarm.sleep(wait_s)

    async def _work(self) -> float:
        """Look after the runs that are due for it; return in how many seconds the next one is."""
        checks = await self._open_runs.check(list(self._own.epochs), _RUNS_AT_ONCE)
        due: list[RunName] = [run for check in checks.values() for run in check.due]
        for first in range(0, len(due), _RUNS_AT_ONCE):
            await self._look_after(due[first : first + _RUNS_AT_ONCE], self._own.epochs)
        upcoming = [check.next_ms for check in checks.values() if check.next_ms is not None]
        if not upcoming:
            return _RETRY_S if due else self._look_s
        wait_s = max(0.0, (min(upcoming) - self._clock.now_ms()) / 1000)
        return min(wait_s, _RETRY_S) if due else wait_s
