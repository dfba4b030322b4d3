"""Opens deliveries with the settings that all of them share."""

from collections.abc import Callable, Collection

from tradewind.trigger.ports import TriggersOfQueue
from tradewind.trigger.use_cases.deliver_due import Delivery
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
        self._traces = traces
        self._store_of = store_of
        self._receivers = receivers
        self.lease_ms = lease_ms
        self._poll_s = poll_s

    def open(self, credits: int, queue: str = "", lead_ms: int = 0, listeners_of: Collection[str] = ()) -> Delivery:
        """Return a delivery of a queue, or of the flows, that holds at most `credits` unacknowledged triggers.

        Due triggers come up to `lead_ms` before their time. The delivery reports new listeners to the events
        `listeners_of`. The caller closes it.
        """
        store, receivers = self._store_of(queue), self._receivers.of(queue)
        return Delivery(
            store, receivers, credits, self.lease_ms, self._poll_s, lead_ms, listeners_of, traces=self._traces
        )
