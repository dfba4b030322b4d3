"""Removing a trigger."""

from tradewind.server.partitions import partition_of
from tradewind.trigger.ports import TriggerStore


class RemoveTrigger:
    """Removes a trigger. Its receiver need not hear of it: at its time there is nothing to claim."""

    def __init__(self, triggers: TriggerStore) -> None:
        self._triggers = triggers

    async def __call__(self, trigger_id: str, partition_key: str, epoch: int) -> bool:
        """Return whether there was one. Raises StaleEpoch."""
        return await self._triggers.remove(partition_of(partition_key), trigger_id, epoch)
