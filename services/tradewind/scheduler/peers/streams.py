"""Streams on which other services deliver work: component events and due triggers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as events_pb2
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as due_pb2
from tradewind.scheduler.domain.chain_state import ComponentEnd
from tradewind.scheduler.domain.due import DueAnswer, DueEvent, DueFlow
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import Event, SubFlowEvent
from tradewind.scheduler.domain.submission import ComponentEvent
from tradewind.scheduler.peers.stream import PeerStream
from tradewind.server.timestamps import milliseconds, set_timestamp


class EventStreamPeer(PeerStream[events_pb2.ReceiveEventsRequest, events_pb2.ReceiveEventsResponse]):
    """Implements EventStream."""

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        wanted = [events_pb2.EventSubscription(partition=p, epoch=epoch) for p, epoch in epochs.items()]
        await self.write(events_pb2.ReceiveEventsRequest(subscribe=wanted))

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        await self.write(events_pb2.ReceiveEventsRequest(unsubscribe=partitions))

    async def receive(self) -> tuple[list[Event], list[int]]:
        response = await self.read()
        return [_event(event) for event in response.events], list(response.ended_partitions)

    async def acknowledge(self, events: Iterable[Event]) -> None:
        last = {(event.partition, event.shard): event.event_id for event in events}
        acks = [
            events_pb2.EventAck(partition=partition, shard=shard, event_id=event_id)
            for (partition, shard), event_id in last.items()
        ]
        await self.write(events_pb2.ReceiveEventsRequest(acks=acks))


class DueStreamPeer(PeerStream[due_pb2.ReceiveDueRequest, due_pb2.ReceiveDueResponse]):
    """Implements DueStream. `receiver` names the receiver, `credits` is the most triggers that it holds at once.

    Triggers come up to `lead_ms` before their time.
    """

    def __init__(self, peer: str, call: Any, receiver: str, credits: int, lead_ms: int) -> None:
        super().__init__(peer, call)
        self._first: dict[str, Any] = {"receiver": receiver, "credits": credits, "listeners_of": [FLOW_FINISHED]}
        if lead_ms:
            self._first["lead"] = timedelta(milliseconds=lead_ms)

    async def subscribe(self, epochs: Mapping[int, int]) -> None:
        wanted = [due_pb2.PartitionSubscription(partition=p, epoch=epoch) for p, epoch in epochs.items()]
        await self.write(due_pb2.ReceiveDueRequest(subscribe=wanted, **self._first))
        self._first = {}

    async def unsubscribe(self, partitions: Collection[int]) -> None:
        await self.write(due_pb2.ReceiveDueRequest(unsubscribe=partitions))

    async def receive(self) -> tuple[list[DueFlow], list[int], bool]:
        response = await self.read()
        return [_due(due) for due in response.due], list(response.ended_partitions), bool(response.listened)

    async def answer(self, answers: Sequence[DueAnswer]) -> None:
        request = due_pb2.ReceiveDueRequest()
        for answer in answers:
            if answer.error:
                nack = request.nacks.add(token=answer.token, error=answer.error)
                if answer.retry_ms >= 0:
                    nack.retry_after.FromMilliseconds(answer.retry_ms)
                    nack.postponed = True
                continue
            ack = request.acks.add(token=answer.token)
            if answer.next_ms > 0:
                set_timestamp(ack.next_fire_time, answer.next_ms)
            else:
                ack.finished = True
        await self.write(request)


def _event(event: component_pb2.Event) -> Event:
    if event.WhichOneof("kind") == "sub_flow":
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
    finished = event.component_finished
    component = finished.component
    counts = component.counts
    return ComponentEvent(
        RunName(component.flow_id, component.cycle, component.run),
        component.run_id,
        component.component_id,
        ComponentEnd(counts.completed, counts.failed, counts.terminated, counts.skipped, component.sinks_completed),
        event.partition,
        event.shard,
        event.event_id,
        finished.sink,
        [(output.handle, output.value_json) for output in finished.outputs],
    )


def run_name_of(cycle: node_task_pb2.SubFlowCycle) -> RunName:
    """Return the run that a node task names."""
    return RunName(cycle.flow_id, cycle.cycle, cycle.run)


def _due(due: trigger_pb2.DueTrigger) -> DueFlow:
    return DueFlow(
        due.trigger.partition_key,
        milliseconds(due.planned_time),
        milliseconds(due.delivered_at),
        due.trigger.epoch,
        due.token,
        due.traceparent,
        DueEvent(due.event.event_id, due.event.name, due.event.payload_json) if due.HasField("event") else None,
    )
