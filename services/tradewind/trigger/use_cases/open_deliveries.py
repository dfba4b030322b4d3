"""Opening deliveries, with what they all have in common."""

from tradewind.trigger.ports import ClaimStore, TriggerStore
from tradewind.trigger.use_cases.deliver_due import Delivery
from tradewind.trigger.use_cases.receivers import Receivers


class OpenDeliveries:
    """Opens one delivery per receiver's stream."""

    def __init__(
        self,
        triggers: TriggerStore,
        claims: ClaimStore,
        receivers: Receivers,
        lease_ms: int,
        fallback_s: float = 5.0,
    ) -> None:
        self._triggers = triggers
        self._claims = claims
        self._receivers = receivers
        self.lease_ms = lease_ms
        self._fallback_s = fallback_s

    def open(self, credits: int) -> Delivery:
        """Return a delivery that holds at most `credits` unacknowledged triggers; the caller closes it."""
        return Delivery(self._triggers, self._claims, self._receivers, credits, self.lease_ms, self._fallback_s)
