"""Changes to runs in memory."""

from collections.abc import Callable, Sequence

from tradewind.scheduler.ports.changes import RunChange
from tradewind.scheduler.stores.memory.data import Data


class MemoryChanges:
    """Implements ChangeFeed; nothing is ever missed."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def subscribe(
        self, partition: int, heard: Callable[[Sequence[RunChange]], None], resync: Callable[[], None]
    ) -> Callable[[], None]:
        listeners = self._data.listeners.setdefault(partition, [])
        listeners.append(heard)

        def end() -> None:
            if heard in listeners:
                listeners.remove(heard)

        return end
