"""What can be done with existing triggers: remove, pause, resume, fire, redrive."""

import secrets
from collections.abc import Callable

from tradewind.server.faults import NotFound
from tradewind.server.partitions import partition_of
from tradewind.trigger.domain.errors import QueueFull, WrongStatus
from tradewind.trigger.domain.event import Event, Outcome
from tradewind.trigger.domain.trigger import ENDED, Trigger, TriggerStatus
from tradewind.trigger.ports.queues import FiringOrder, QueueStore
from tradewind.trigger.ports.stores import TriggersOfQueue
from tradewind.trigger.ports.wakes import EarlierDue
from tradewind.trigger.use_cases.receivers import QueueReceivers

BY_HAND = "fired.by.hand"
"""The name of the event for which a trigger that is fired by hand fires."""


class ChangeTriggers:
    """Changes triggers; their receivers in this process are notified at once."""

    def __init__(
        self, store_of: Callable[[str], TriggersOfQueue], queues: QueueStore, receivers: QueueReceivers
    ) -> None:
        self._store_of = store_of
        self._queues = queues
        self._receivers = receivers

    async def remove(self, trigger_id: str, partition_key: str, epoch: int, queue: str) -> bool:
        """Remove a trigger, and return whether there was one. Raises StaleEpoch.

        Its receivers need not be notified: at its time there is nothing to claim.
        """
        return await self._store_of(queue).remove(partition_of(queue or partition_key), trigger_id, epoch)

    async def pause(self, queue: str, trigger_id: str, note: str) -> Trigger:
        """Keep a trigger from firing. Raises NotFound, and WrongStatus when it has ended."""
        trigger = await self._queues.pause(partition_of(queue), queue, trigger_id, note)
        if trigger is None:
            raise NotFound("trigger", trigger_id)
        if trigger.status in ENDED:
            raise WrongStatus(trigger_id, trigger.status.value, "only a trigger that may still fire can be paused")
        return trigger

    async def resume(self, queue: str, trigger_id: str) -> Trigger:
        """Let a trigger fire again, at the first planned time whose delivery is still ahead. Raises NotFound."""
        partition = partition_of(queue)
        store = self._store_of(queue)
        known = await store.find(partition, trigger_id)
        if known is None:
            raise NotFound("trigger", trigger_id)
        _, survey = await store.poll([], partition)
        now_ms = survey.now_us // 1000
        planned_ms: int | None = known.planned_ms
        if known.schedule.repeats:
            planned_ms = known.schedule.first_ahead(trigger_id, known.planned_ms, now_ms)
        trigger = await self._queues.resume(partition, queue, trigger_id, known.planned_ms, planned_ms)
        if trigger is None:
            raise NotFound("trigger", trigger_id)
        if trigger.status is TriggerStatus.SCHEDULED:
            self._receivers.notify(EarlierDue(partition, trigger.delivery_ms, queue))
        return trigger

    async def fire(self, queue: str, trigger_id: str, payload_json: str, request_id: str) -> tuple[str, bool]:
        """Deliver a trigger once more, at once. Returns the id of the event for this, and whether it was new.

        Raises NotFound, and QueueFull when too many of its firings wait.
        """
        partition = partition_of(queue)
        event = Event(request_id or secrets.token_hex(16), BY_HAND, payload_json)
        (outcome,) = await self._queues.fire([FiringOrder(partition, queue, trigger_id)], event, by_hand=True)
        if outcome is Outcome.GONE:
            raise NotFound("trigger", trigger_id)
        if outcome is Outcome.FULL:
            raise QueueFull(
                f'too many firings of "{trigger_id}" are waiting; let the receivers of queue "{queue}" catch up'
            )
        self._receivers.notify(EarlierDue(partition, 0, queue))
        return event.id, outcome is Outcome.FIRED

    async def redrive(self, queue: str, partition_key: str, trigger_id: str, firing_id: str) -> None:
        """Make a dead trigger or firing due again. Raises NotFound, and WrongStatus when it is not dead."""
        partition, id = partition_of(queue or partition_key), firing_id or trigger_id
        if not await self._queues.redrive(partition, queue, id):
            trigger = await self._store_of(queue).find(partition, id)
            if trigger is None or trigger.status is TriggerStatus.DEAD:
                raise NotFound("trigger", id)
            raise WrongStatus(id, trigger.status.value, "only a dead trigger or firing can be redriven")
        self._receivers.notify(EarlierDue(partition, 0, queue))
