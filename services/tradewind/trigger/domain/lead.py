"""How long before their time triggers are delivered to a receiver that wants to be ready on time."""

from dataclasses import dataclass

MIN_LEAD_MS = 50
"""How long one trigger by itself takes from the store to a worker, on a busy machine."""

LEAD_PER_TRIGGER_MS = 0.8
"""How much longer it takes for each further trigger that is due at the same time."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A lead of at most `max_ms`; `shares` is the number of partitions, assumed alike, that the receiver serves."""

    max_ms: int = 0
    shares: int = 1

    def for_count(self, due: int) -> int:
        """Return the lead in milliseconds when `due` triggers of one partition are due within the longest lead."""
        return min(self.max_ms, int(MIN_LEAD_MS + LEAD_PER_TRIGGER_MS * due * self.shares))


NO_LEAD = Lead()
