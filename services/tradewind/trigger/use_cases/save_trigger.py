"""Saves a trigger."""

import secrets
from collections.abc import Callable
from dataclasses import replace

from tradewind.server.partitions import partition_of
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.ports.triggers import TriggerStore
from tradewind.trigger.ports.wakes import EarlierDue
from tradewind.trigger.use_cases.receivers import QueueReceivers


class SaveTrigger:
    """Creates or replaces a trigger; its receivers in this process are notified at once."""

    def __init__(self, store_of: Callable[[str], TriggerStore], receivers: QueueReceivers) -> None:
        self._store_of = store_of
        self._receivers = receivers

    async def __call__(self, draft: TriggerDraft, queue: str) -> Trigger:
        """Save a trigger, with a new id if it has none, and return it as stored. Raises StaleEpoch and QueueFull.

        All triggers of a queue are in the partition of its name.
        """
        if not draft.id:
            draft = replace(draft, id=secrets.token_hex(16))
        if queue:
            draft = replace(draft, partition_key=queue)
        partition = partition_of(draft.partition_key)
        trigger = await self._store_of(queue).save(partition, draft)
        if trigger.status is TriggerStatus.SCHEDULED:
            self._receivers.notify(EarlierDue(partition, trigger.delivery_ms, queue))
        return trigger
