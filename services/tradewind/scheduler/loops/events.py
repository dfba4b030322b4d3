"""Takes in the node task manager's events."""

import structlog

from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.domain.submission import ComponentEvent, OpenComponentEvent
from tradewind.scheduler.loops.acknowledging import Acks
from tradewind.scheduler.loops.event_queue import EventQueue
from tradewind.scheduler.loops.owned_stream import OwnedStream
from tradewind.scheduler.ports.peers import EventStream, NodeTasks
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.fold_events import FoldEvents
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.scheduler.use_cases.sink_outputs import SinkOutputs
from tradewind.scheduler.use_cases.stop_ended_runs import StopEndedRuns
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.server.backoff import Backoff
from tradewind.server.incidents import IncidentLog

_BACKOFF_S = (0.05, 2.0)

_log = structlog.get_logger(__name__)


def event_loop(
    node_tasks: NodeTasks,
    fold: FoldEvents,
    outputs: SinkOutputs,
    ownership: OwnPartitions,
    background: Background,
    sub_flows: SubFlows,
    stop_ended_runs: StopEndedRuns,
) -> OwnedStream[Event, EventStream]:
    """Return the loop that folds events into chain states, does what else they ask for, and acknowledges them."""

    failing = IncidentLog(_log, "events_not_applied", "events_applied_again")
    acks = Acks(background)
    nodes_that_run_flows = EventQueue(sub_flows.handle, background, "nodes that run flows")
    open_components = EventQueue(stop_ended_runs, background, "open components")

    async def work(stream: EventStream, events: list[Event]) -> None:
        # Events of a partition that is not owned now come again, even if it is owned again before the batch is done.
        events = [event for event in events if ownership.owns(event.partition)]
        ends = [event for event in events if isinstance(event, ComponentEvent)]
        sub_flow_events = [event for event in events if isinstance(event, SubFlowEvent)]
        open_events = [event for event in events if isinstance(event, OpenComponentEvent)]
        batch = acks.batch(stream, events, parts=1 + bool(sub_flow_events) + bool(open_events))
        if sub_flow_events:
            await nodes_that_run_flows.put(sub_flow_events, batch)
        if open_events:
            await open_components.put(open_events, batch)
        not_folded, lost = await fold_all(ends)
        ownership.lose(lost, "a write was refused")
        batch.part_done(not_folded | lost)

    async def fold_all(events: list[ComponentEvent]) -> tuple[set[int], set[int]]:
        """Return the partitions that were not owned when events were folded, and those that turned out to be lost."""
        backoff = Backoff(*_BACKOFF_S)
        for event in events:
            outputs.collect(event)
        while True:
            epochs = ownership.epochs
            mine = [event for event in events if event.partition in epochs]
            try:
                return {event.partition for event in events if event.partition not in epochs}, await fold(mine, epochs)
            except Exception as error:
                # Events must be on record before they are acknowledged, so all that can be done is to try again.
                failing.note_error(error, events=len(mine))
                await backoff.pause()

    return OwnedStream("events", node_tasks.events, lambda stream: stream.receive(), work, ownership)
