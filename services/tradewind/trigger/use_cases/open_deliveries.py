"""Opens deliveries with the settings that all of them share."""

from collections.abc import Callable

from tradewind.trigger.ports.stores import TriggersOfQueue
from tradewind.trigger.use_cases.deliver_due import Delivery
from tradewind.trigger.use_cases.parcel import Opening
from tradewind.trigger.use_cases.receivers import QueueReceivers
from tradewind.trigger.use_cases.trace_firings import TraceFirings


class OpenDeliveries:
    """Opens one delivery per receiver's stream."""

    def __init__(
        self,
        store_of: Callable[[str], TriggersOfQueue],
        receivers: QueueReceivers,
        lease_ms: int,
        traces: TraceFirings | None = None,
        poll_s: float = 5.0,
    ) -> None:
        self._store_of = store_of
        self._receivers = receivers
        self.lease_ms = lease_ms
        self._traces = traces
        self._poll_s = poll_s

    def open(self, opening: Opening) -> Delivery:
        """Return the delivery that a receiver asks for. The caller closes it."""
        store, receivers = self._store_of(opening.queue), self._receivers.of(opening.queue)
        return Delivery(store, receivers, opening, self.lease_ms, self._poll_s, self._traces)
