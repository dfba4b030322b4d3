"""Events of one shard in memory."""

from tradewind.node_task_manager.ports.events import FIRST, Event, NewEvent


class MemoryEvents:
    """An EventLog."""

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
        found: list[Event] = []
        for partition, event_id in after.items():
            fresh = [event for event in self._events.get(partition, ()) if _order(event.event_id) > _order(event_id)]
            found += fresh[:limit]
        return found

    async def acknowledge(self, through: dict[int, str]) -> None:
        for partition, event_id in through.items():
            kept = [event for event in self._events.get(partition, ()) if _order(event.event_id) > _order(event_id)]
            self._events[partition] = kept


def _order(event_id: str) -> tuple[int, ...]:
    return tuple(map(int, event_id.split("-")))
