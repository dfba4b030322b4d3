"""What a client asks about the triggers of queues, and how it publishes events."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.due_triggers import DueTriggers
from tradewind.client.errors import NotFound, WrongStatus
from tradewind.client.json_text import encode
from tradewind.client.messages import build
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
from tradewind.client.wire import Seconds, object_json

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
        """Create or replace a trigger of a queue; an empty id makes a new one.

        Saving the same trigger again changes nothing; but `every` without `anchor` or `start` counts anew from each
        call, so give one of them to a trigger that is saved repeatedly.

        Exactly one of these says when it fires: `at` a time; at several `times`; once `after` a length of time;
        `every` length of time, from `anchor` (or `start`, or one interval from now) on; by `cron` in a `time_zone`; for
        each `event` of that name that matches a `filter`; `on_finished` for ends of cycles of these flows (an empty
        list: of any flow) with these `statuses`. A completed schedule begins again with another schedule or a higher
        `epoch`; a lower one is refused. Raises ValueError, InvalidInput, WrongStatus for a stale epoch, Exhausted when
        the queue is full.
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
        trigger = build(
            trigger_pb2.Trigger,
            # Made here, an id is the same for every attempt.
            trigger_id=trigger_id or new_request_id(),
            queue=queue,
            schedule=schedule,
            payload_json="" if payload is None else encode(payload),
            epoch=epoch,
        )
        request = build(pb.SaveTriggerRequest, trigger=trigger)
        answer = await self._connection.call(self._connection.trigger.SaveTrigger, request)
        return trigger_from(answer.trigger)

    async def get_trigger(self, queue: str, trigger_id: str) -> TriggerRecord:
        """Return a trigger of a queue. Raises NotFound."""
        request = build(pb.FindTriggerRequest, queue=queue, trigger_id=trigger_id)
        answer = await self._connection.call(self._connection.trigger.FindTrigger, request)
        return trigger_from(answer.trigger)

    async def remove_trigger(self, queue: str, trigger_id: str, *, epoch: int = 0) -> bool:
        """Remove a trigger of a queue with all its waiting firings; return whether there was one.

        When the call is repeated and none is left, it counts as removed by the first attempt.
        """
        request = build(pb.RemoveTriggerRequest, queue=queue, trigger_id=trigger_id, epoch=epoch)
        repetition = asyncio.Event()
        answer = await self._connection.call(self._connection.trigger.RemoveTrigger, request, on_repeat=repetition.set)
        return answer.removed or repetition.is_set()

    async def list_triggers(self, queue: str) -> AsyncIterator[TriggerRecord]:
        """Yield the triggers of a queue, in the order of their creation."""
        request = build(pb.ListTriggersRequest, queue=queue, page_size=PAGE)
        async for page in self._connection.pages(self._connection.trigger.ListTriggers, request):
            for trigger in page.triggers:
                yield trigger_from(trigger)

    async def fire_trigger(
        self, queue: str, trigger_id: str, payload: Mapping[str, Any] | None = None, *, request_id: str = ""
    ) -> bool:
        """Fire a trigger once now, in addition to its planned times; return False if this `request_id` did so before.

        Raises NotFound, and Exhausted when too many of its firings wait.
        """
        request = build(
            pb.FireTriggerRequest,
            queue=queue,
            trigger_id=trigger_id,
            payload_json=object_json(payload, "payload"),
            request_id=request_id or new_request_id(),
        )
        answer = await self._connection.call(self._connection.trigger.FireTrigger, request)
        return answer.fired or not request_id

    async def pause_trigger(self, queue: str, trigger_id: str, note: str = "") -> TriggerRecord:
        """Keep a trigger from firing; events in the meantime are not kept. Raises NotFound, WrongStatus."""
        request = build(pb.PauseTriggerRequest, queue=queue, trigger_id=trigger_id, note=note)
        answer = await self._connection.call(self._connection.trigger.PauseTrigger, request)
        return trigger_from(answer.trigger)

    async def resume_trigger(self, queue: str, trigger_id: str) -> TriggerRecord:
        """Let a paused trigger fire again, from its next planned time on. Raises NotFound."""
        request = build(pb.ResumeTriggerRequest, queue=queue, trigger_id=trigger_id)
        answer = await self._connection.call(self._connection.trigger.ResumeTrigger, request)
        return trigger_from(answer.trigger)

    async def list_trigger_firings(self, queue: str, trigger_id: str = "") -> AsyncIterator[TriggerFiring]:
        """Yield how firings of a queue, or of one trigger, ended, newest first; the newest 1000 are kept."""
        request = build(pb.ListFiringsRequest, queue=queue, trigger_id=trigger_id, page_size=PAGE)
        async for page in self._connection.pages(self._connection.trigger.ListFirings, request):
            for firing in page.firings:
                yield trigger_firing_from(firing)

    async def list_dead_triggers(self, queue: str) -> AsyncIterator[TriggerRecord]:
        """Yield the triggers and firings that were refused too often, in the order in which they died."""
        request = build(pb.ListDeadTriggersRequest, queue=queue, page_size=PAGE)
        async for page in self._connection.pages(self._connection.trigger.ListDeadTriggers, request):
            for trigger in page.triggers:
                yield trigger_from(trigger)

    async def redrive_trigger(self, queue: str, trigger_id: str, firing_id: str = "") -> None:
        """Make a dead trigger, or one dead firing of it, due again. Raises NotFound, and WrongStatus if not dead."""
        request = build(pb.RedriveTriggerRequest, queue=queue, trigger_id=trigger_id, firing_id=firing_id)
        await self._connection.call_or_done(self._connection.trigger.RedriveTrigger, request, NotFound, WrongStatus)

    async def count_triggers(self, queue: str) -> TriggerCounts:
        """Return how many triggers of a queue have each status."""
        request = build(pb.CountTriggersRequest, queue=queue)
        return counts_from(await self._connection.call(self._connection.trigger.CountTriggers, request))

    async def publish_event(
        self, name: str, payload: Mapping[str, Any] | None = None, *, event_id: str = ""
    ) -> PublishedEvent:
        """Publish an event to every trigger that listens for it; one `event_id` fires each trigger once in 24 h.

        When the call is repeated because its answer was lost, firings of the first attempt count as duplicates.
        Raises InvalidInput, and Exhausted when all that it matches have too many firings waiting.
        """
        request = build(
            pb.PublishEventRequest,
            name=name,
            payload_json=object_json(payload, "payload"),
            event_id=event_id or new_request_id(),
        )
        return published_from(await self._connection.call(self._connection.trigger.PublishEvent, request))

    def receive_due(self, queue: str, *, credits: int = 100, receiver: str = "") -> DueTriggers:
        """Return the triggers of a queue as they become due: `async for due in client.receive_due("reports"): ...`.

        Any number of receivers may share a queue; each trigger goes to one of them. At most `credits` are held
        unanswered. Use it with `async with`: on exit, answers have arrived and unanswered triggers are given back.
        """
        connection = self._connection
        return DueTriggers(lambda: connection.trigger.ReceiveDue, connection, queue, credits, receiver)
