"""Takes in the node task manager's events, and looks after open runs."""

import asyncio
import math

import structlog

from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.domain.submission import ComponentEvent
from tradewind.scheduler.loops.acknowledging import Acks, Batch
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.loops.owned_work import OwnedWork
from tradewind.scheduler.ports.cycles import OpenRuns
from tradewind.scheduler.ports.owning import Epochs
from tradewind.scheduler.ports.peers import EventStream, NodeTasks
from tradewind.scheduler.use_cases.alarm import Alarm
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.sink_outputs import SinkOutputs
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.scheduler.use_cases.supervise_runs import SuperviseRuns
from tradewind.server.backoff import Backoff
from tradewind.server.clock import Clock

_FOLD_BACKOFF_S = (0.05, 2.0)
_SUB_FLOW_TRIES = 8
_MOST_WAITING = 100
"""The most batches that may wait to be handled before `put` waits."""
_RUNS_AT_ONCE = 500
_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class SubFlowQueue:
    """Handles the events of nodes that run flows, in order, while ends of components are folded.

    Beginning a cycle takes calls to other services, and ends must not wait for them: ends wait only while too many
    batches wait here.
    """

    def __init__(self, sub_flows: SubFlows, background: Background) -> None:
        self._sub_flows = sub_flows
        self._background = background
        self._waiting: list[tuple[list[SubFlowEvent], Batch]] = []
        self._room = asyncio.Event()
        self._busy = False

    async def put(self, events: list[SubFlowEvent], batch: Batch) -> None:
        """Handle these events soon, as a part of their batch; wait while too many other batches are waiting."""
        self._waiting.append((events, batch))
        if not self._busy:
            self._busy = True
            self._background.begin(self._process(), "sub-flows")
        while len(self._waiting) > _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def _process(self) -> None:
        try:
            while self._waiting:
                batches, self._waiting = self._waiting, []
                self._room.set()
                await handle_sub_flows(self._sub_flows, [event for events, _ in batches for event in events])
                for events, batch in batches:
                    batch.part_done(events)
        finally:
            self._busy = False


def event_loop(
    node_tasks: NodeTasks,
    fold: FoldEvents,
    outputs: SinkOutputs,
    ownership: OwnPartitions,
    background: Background,
    sub_flows: SubFlows,
) -> OwnedStream[Event, EventStream]:
    """Return the loop that folds events into chain states, begins sub-flows, and acknowledges events on record."""

    acks, queue = Acks(background), SubFlowQueue(sub_flows, background)

    async def work(stream: EventStream, events: list[Event]) -> None:
        ends = [event for event in events if isinstance(event, ComponentEvent)]
        sub_flow_events = [
            event for event in events if isinstance(event, SubFlowEvent) and ownership.owns(event.partition)
        ]
        batch = acks.batch(stream, parts=2 if sub_flow_events else 1)
        if sub_flow_events:
            await queue.put(sub_flow_events, batch)
        folded, lost = await fold_all(ends)
        ownership.lose(lost, "a write was refused")
        # A partition that was not owned during the fold may be owned again: acknowledge only the events folded.
        batch.part_done([event for event in ends if event.partition in folded], lost)

    async def fold_all(events: list[ComponentEvent]) -> tuple[set[int], set[int]]:
        """Return the partitions whose events were folded, and the partitions that turned out to be lost."""
        backoff = Backoff(*_FOLD_BACKOFF_S)
        for event in events:
            outputs.collect(event)
        while True:
            mine = [event for event in events if ownership.owns(event.partition)]
            try:
                return {event.partition for event in mine}, await fold(mine, ownership.epochs)
            except Exception as error:
                # Events must be on record before they are acknowledged, so all that can be done is to try again.
                _log.warning("events_not_folded", events=len(mine), error=error)
                await backoff.pause()

    return OwnedStream("events", node_tasks.events, lambda stream: stream.receive(), work, ownership)


async def handle_sub_flows(sub_flows: SubFlows, events: list[SubFlowEvent]) -> None:
    """Do what events ask for; if that keeps failing, leave it to SuperviseRuns."""
    backoff = Backoff(*_FOLD_BACKOFF_S)
    for _ in range(_SUB_FLOW_TRIES):
        try:
            await sub_flows.handle(events)
            return
        except Exception as error:
            _log.warning("sub_flows_wait", events=len(events), error=error)
            await backoff.pause()


def open_runs_loop(
    open_runs: OpenRuns, supervise: SuperviseRuns, ownership: OwnPartitions, alarm: Alarm, clock: Clock, poll_s: float
) -> OwnedWork:
    """Return the loop that looks after open runs, and sleeps until the earliest check is due."""

    async def work(epochs: Epochs) -> float:
        checks = await open_runs.check(list(epochs), _RUNS_AT_ONCE)
        due: list[RunName] = [run for check in checks.values() for run in check.due]
        for first in range(0, len(due), _RUNS_AT_ONCE):
            await supervise(due[first : first + _RUNS_AT_ONCE], epochs)
        upcoming = [check.next_ms for check in checks.values() if check.next_ms is not None]
        if not upcoming:
            return _RETRY_S if due else math.inf
        wait_s = max(0.0, (min(upcoming) - clock.now_ms()) / 1000)
        return min(wait_s, _RETRY_S) if due else wait_s

    return OwnedWork("open_runs_not_looked_after", work, ownership, alarm, poll_s, _RETRY_S)
