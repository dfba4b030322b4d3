"""Events of one shard in memory."""

from tradewind.node_task_manager.ports.events import FIRST, Event, NewEvent, position


class MemoryEvents:
    """Implements EventLog."""

    def __init__(self) -> None:
        self._events: dict[int, list[Event]] = {}
        self._last: dict[int, str] = {}
        self._new: list[NewEvent] = []
        self._epochs: dict[int, int] = {}

    def waiting(self, partition: int) -> int:
        """Return how many events of a partition are not acknowledged."""
        return len(self._events.get(partition, ()))

    def append(self, event: Event) -> None:
        """Add an event to its partition."""
        self._events.setdefault(event.partition, []).append(event)
        self._new.append(NewEvent(self._last.get(event.partition, FIRST), event))
        self._last[event.partition] = event.event_id

    def new_events(self) -> list[NewEvent]:
        """Return the events added since the last call."""
        new, self._new = self._new, []
        return new

    async def subscribe(self, partition: int, epoch: int) -> bool:
        if epoch < self._epochs.get(partition, 0):
            return False
        self._epochs[partition] = epoch
        return True

    async def read(self, after: dict[int, str], limit: int) -> list[Event]:
        return [event for partition, at in after.items() for event in self._after(partition, at)[:limit]]

    async def acknowledge(self, through: dict[int, str]) -> None:
        for partition, event_id in through.items():
            self._events[partition] = self._after(partition, event_id)

    def _after(self, partition: int, event_id: str) -> list[Event]:
        at = position(event_id)
        return [event for event in self._events.get(partition, ()) if position(event.event_id) > at]
