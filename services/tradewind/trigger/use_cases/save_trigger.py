"""Saving a trigger."""

import secrets
from dataclasses import replace

from tradewind.server.partitions import partition_of
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.ports import EarlierDue, TriggerStore
from tradewind.trigger.use_cases.receivers import Receivers


class SaveTrigger:
    """Creates or replaces a trigger; its receiver, when it is in this process, hears of it at once."""

    def __init__(self, triggers: TriggerStore, receivers: Receivers) -> None:
        self._triggers = triggers
        self._receivers = receivers

    async def __call__(self, draft: TriggerDraft) -> Trigger:
        """Return the trigger as stored, with a new id when it had none. Raises StaleEpoch."""
        if not draft.id:
            draft = replace(draft, id=secrets.token_hex(16))
        partition = partition_of(draft.partition_key)
        trigger = await self._triggers.save(partition, draft)
        if trigger.status is TriggerStatus.SCHEDULED:
            self._receivers.hear(EarlierDue(partition, trigger.delivery_ms))
        return trigger
