"""Changes to runs in memory."""

from collections.abc import Callable, Sequence

from tradewind.scheduler.ports.changes import RunChange
from tradewind.scheduler.stores.memory.data import Data


class MemoryChanges:
    """Implements ChangeFeed; nothing is ever missed."""

    def __init__(self, data: Data) -> None:
        self._data = data

    async def subscribe(
        self, partition: int, on_changes: Callable[[Sequence[RunChange]], None], resync: Callable[[], None]
    ) -> Callable[[], None]:
        listeners = self._data.listeners.setdefault(partition, [])
        listeners.append(on_changes)

        def end() -> None:
            if on_changes in listeners:
                listeners.remove(on_changes)

        return end
