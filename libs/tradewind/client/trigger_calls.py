"""What a client asks about the triggers of queues, and the events that it publishes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.due_triggers import DueTriggers
from tradewind.client.json_text import encode
from tradewind.client.messages import made
from tradewind.client.trigger_schedules import schedule_of
from tradewind.client.triggers import (
    PublishedEvent,
    TriggerCounts,
    TriggerFiring,
    TriggerRecord,
    counts_from,
    published_from,
    trigger_firing_from,
    trigger_from,
)
from tradewind.client.wire import Seconds

PAGE = 200


class TriggerCalls:
    """Triggers of queues, and events."""

    _connection: Connection

    async def save_trigger(
        self,
        trigger_id: str,
        *,
        queue: str,
        at: datetime | None = None,
        times: Sequence[datetime] = (),
        after: Seconds | None = None,
        every: Seconds | None = None,
        anchor: datetime | None = None,
        cron: str = "",
        time_zone: str = "",
        event: str = "",
        filter: Mapping[str, Any] | None = None,
        on_finished: Sequence[str] | str | None = None,
        statuses: Sequence[str] = (),
        payload: Any = None,
        jitter: Seconds = 0.0,
        start: datetime | None = None,
        end: datetime | None = None,
        max_firings: int = 0,
        epoch: int = 0,
    ) -> TriggerRecord:
        """Create or replace a trigger of a queue; an empty id gets one made. The same again changes nothing; `every`
        without `anchor` or `start` counts from each call anew, so give one to what is saved again and again.

        When it fires is said by one of: `at`; `times`; `after` so many seconds; `every` so many seconds, from `anchor`
        (or `start`, or one interval from now) on; `cron` in a `time_zone`; for each `event` of a name that matches a
        `filter`; `on_finished` for ends of cycles of these flows (an empty list: of any) with these `statuses`.
        A schedule that has completed begins again with another schedule or a higher `epoch`; a lower one is refused.
        Raises ValueError, InvalidInput, WrongStatus for a stale epoch, Exhausted when the queue is full.
        """
        schedule = schedule_of(
            at=at,
            times=times,
            after=after,
            every=every,
            anchor=anchor,
            cron=cron,
            time_zone=time_zone,
            event=event,
            filter=filter,
            on_finished=on_finished,
            statuses=statuses,
            jitter=jitter,
            start=start,
            end=end,
            max_firings=max_firings,
        )
        trigger = made(
            trigger_pb2.Trigger,
            trigger_id=trigger_id,
            queue=queue,
            schedule=schedule,
            payload_json="" if payload is None else encode(payload),
            epoch=epoch,
        )
        request = made(pb.SaveTriggerRequest, trigger=trigger)
        answer = await self._connection.to_trigger.call(self._connection.trigger.SaveTrigger, request)
        return trigger_from(answer.trigger)

    async def get_trigger(self, queue: str, trigger_id: str) -> TriggerRecord:
        """Return a trigger of a queue. Raises NotFound."""
        request = made(pb.FindTriggerRequest, queue=queue, trigger_id=trigger_id)
        answer = await self._connection.to_trigger.call(self._connection.trigger.FindTrigger, request)
        return trigger_from(answer.trigger)

    async def remove_trigger(self, queue: str, trigger_id: str, *, epoch: int = 0) -> bool:
        """Remove a trigger of a queue with all its firings that wait, and say whether there was one."""
        request = made(pb.RemoveTriggerRequest, queue=queue, trigger_id=trigger_id, epoch=epoch)
        return (await self._connection.to_trigger.call(self._connection.trigger.RemoveTrigger, request)).removed

    async def list_triggers(self, queue: str) -> AsyncIterator[TriggerRecord]:
        """Yield the triggers of a queue, by creation."""
        request = made(pb.ListTriggersRequest, queue=queue, page_size=PAGE)
        async for page in self._connection.to_trigger.pages(self._connection.trigger.ListTriggers, request):
            for trigger in page.triggers:
                yield trigger_from(trigger)

    async def fire_trigger(
        self, queue: str, trigger_id: str, payload: Mapping[str, Any] | None = None, *, request_id: str = ""
    ) -> bool:
        """Deliver a trigger once more, now; its planned times stay. False when this `request_id` did so before.

        Raises NotFound, and Exhausted when too many of its firings wait.
        """
        request = made(
            pb.FireTriggerRequest,
            queue=queue,
            trigger_id=trigger_id,
            payload_json=encode(dict(payload)) if payload else "",
            request_id=request_id or new_request_id(),
        )
        answer = await self._connection.to_trigger.call(self._connection.trigger.FireTrigger, request)
        return answer.fired or not request_id

    async def pause_trigger(self, queue: str, trigger_id: str, note: str = "") -> TriggerRecord:
        """Keep a trigger from firing; events that come meanwhile are not kept. Raises NotFound, WrongStatus."""
        request = made(pb.PauseTriggerRequest, queue=queue, trigger_id=trigger_id, note=note)
        answer = await self._connection.to_trigger.call(self._connection.trigger.PauseTrigger, request)
        return trigger_from(answer.trigger)

    async def resume_trigger(self, queue: str, trigger_id: str) -> TriggerRecord:
        """Let a paused trigger fire again, from its next planned time after now on. Raises NotFound."""
        request = made(pb.ResumeTriggerRequest, queue=queue, trigger_id=trigger_id)
        answer = await self._connection.to_trigger.call(self._connection.trigger.ResumeTrigger, request)
        return trigger_from(answer.trigger)

    async def list_trigger_firings(self, queue: str, trigger_id: str = "") -> AsyncIterator[TriggerFiring]:
        """Yield how firings of a queue, or of one trigger, ended, newest first; the newest 1000 are kept."""
        request = made(pb.ListFiringsRequest, queue=queue, trigger_id=trigger_id, page_size=PAGE)
        async for page in self._connection.to_trigger.pages(self._connection.trigger.ListFirings, request):
            for firing in page.firings:
                yield trigger_firing_from(firing)

    async def list_dead_triggers(self, queue: str) -> AsyncIterator[TriggerRecord]:
        """Yield what was refused too often, what died first before the others."""
        request = made(pb.ListDeadTriggersRequest, queue=queue, page_size=PAGE)
        async for page in self._connection.to_trigger.pages(self._connection.trigger.ListDeadTriggers, request):
            for trigger in page.triggers:
                yield trigger_from(trigger)

    async def redrive_trigger(self, queue: str, trigger_id: str, firing_id: str = "") -> None:
        """Make a dead trigger, or one dead firing of it, due again. Raises NotFound, and WrongStatus if not dead."""
        request = made(pb.RedriveTriggerRequest, queue=queue, trigger_id=trigger_id, firing_id=firing_id)
        await self._connection.to_trigger.call(self._connection.trigger.RedriveTrigger, request)

    async def count_triggers(self, queue: str) -> TriggerCounts:
        """Return how many triggers of a queue stand where."""
        request = made(pb.CountTriggersRequest, queue=queue)
        return counts_from(await self._connection.to_trigger.call(self._connection.trigger.CountTriggers, request))

    async def publish_event(
        self, name: str, payload: Mapping[str, Any] | None = None, *, event_id: str = ""
    ) -> PublishedEvent:
        """Tell an event to every trigger that listens to it; the same `event_id` fires each once in 24 h.

        Raises InvalidInput, and Exhausted when all that it matches have too many firings waiting.
        """
        request = made(
            pb.PublishEventRequest,
            name=name,
            payload_json=encode(dict(payload)) if payload else "",
            event_id=event_id or new_request_id(),
        )
        return published_from(await self._connection.to_trigger.call(self._connection.trigger.PublishEvent, request))

    def receive_due(self, queue: str, *, credits: int = 100, receiver: str = "") -> DueTriggers:
        """Return what is due of a queue, as it becomes due: `async for due in client.receive_due("reports"): ...`.

        Any number of receivers share a queue, each trigger goes to one. At most `credits` are held unanswered. Use it
        with `async with`, so that answers have arrived and what is held is given back when it ends.
        """
        connection = self._connection
        return DueTriggers(lambda: connection.trigger.ReceiveDue, connection.to_trigger, queue, credits, receiver)
