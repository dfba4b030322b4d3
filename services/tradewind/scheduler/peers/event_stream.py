"""The stream on which the node task manager delivers events."""

from collections.abc import Collection, Iterable, Mapping

from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.scheduler.domain.chain_state import ComponentEnd
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.domain.submission import ComponentEvent, OpenComponentEvent
from tradewind.scheduler.peers.stream import PeerStream
from tradewind.server.timestamps import milliseconds


class EventStreamPeer(PeerStream[pb2.ReceiveEventsRequest, pb2.ReceiveEventsResponse]):
    """Implements EventStream."""

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        wanted = [pb2.EventSubscription(partition=p, epoch=epoch) for p, epoch in epochs.items()]
        await self.write(pb2.ReceiveEventsRequest(subscribe=wanted))

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        await self.write(pb2.ReceiveEventsRequest(unsubscribe=partitions))

    async def receive(self) -> tuple[list[Event], list[int]]:
        response = await self.read()
        return [_event(event) for event in response.events], list(response.ended_partitions)

    async def acknowledge(self, events: Iterable[Event]) -> None:
        acks = [pb2.EventAck(partition=one.partition, shard=one.shard, event_id=one.event_id) for one in events]
        await self.write(pb2.ReceiveEventsRequest(acks=acks))


def _event(event: component_pb2.Event) -> Event:
    kind = event.WhichOneof("kind")
    if kind == "sub_flow":
        sub_flow = event.sub_flow
        flow_id, cycle, run, node = sub_flow.node_task_id.split(":", 3)
        return SubFlowEvent(
            RunName(flow_id, int(cycle), int(run)),
            sub_flow.run_id,
            sub_flow.user_id,
            node,
            run_name_of(sub_flow.abandoned) if sub_flow.HasField("abandoned") else None,
            event.partition,
            event.shard,
            event.event_id,
        )
    if kind == "component_open":
        component = event.component_open.component
        return OpenComponentEvent(
            run_name_of(component),
            component.run_id,
            component.component_id,
            event.component_open.user_id,
            milliseconds(component.submitted_at),
            event.partition,
            event.shard,
            event.event_id,
        )
    finished = event.component_finished
    component = finished.component
    return ComponentEvent(
        run_name_of(component),
        component.run_id,
        component.component_id,
        component_end(component),
        event.partition,
        event.shard,
        event.event_id,
        finished.sink,
        # A slice, because a loop over a message's own field costs an IndexError at the end.
        [(output.handle, output.value_json) for output in finished.outputs[:]],
    )


def run_name_of(message: component_pb2.Component | node_task_pb2.SubFlowCycle) -> RunName:
    """Return the run that a message names."""
    return RunName(message.flow_id, message.cycle, message.run)


def component_end(component: component_pb2.Component) -> ComponentEnd:
    """Return how many nodes of a component have ended in each way."""
    counts = component.counts
    return ComponentEnd(counts.completed, counts.failed, counts.terminated, counts.skipped, component.sinks_completed)
