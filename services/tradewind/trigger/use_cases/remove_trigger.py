"""Removes a trigger."""

from collections.abc import Callable

from tradewind.server.partitions import partition_of
from tradewind.trigger.ports import TriggerStore


class RemoveTrigger:
    """Removes a trigger. Its receiver need not be notified: at its time there is nothing to claim."""

    def __init__(self, store_of: Callable[[str], TriggerStore]) -> None:
        self._store_of = store_of

    async def __call__(self, trigger_id: str, partition_key: str, epoch: int, queue: str = "") -> bool:
        """Remove a trigger, and return whether there was one. Raises StaleEpoch."""
        return await self._store_of(queue).remove(partition_of(queue or partition_key), trigger_id, epoch)
