"""How long before their time triggers are delivered to a receiver that wants to be ready on time."""

from dataclasses import dataclass

LEAST_MS = 50
"""How long one trigger by itself takes from the store to a worker, on a busy machine."""

EACH_MS = 0.8
"""How much longer it takes for each further trigger that is due at the same time."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A lead of at most `most_ms`; `shares` is the number of partitions, assumed alike, that the receiver serves."""

    most_ms: int = 0
    shares: int = 1

    def for_count(self, due: int) -> int:
        """Return the lead in milliseconds when `due` triggers of one partition are due within the longest lead."""
        return min(self.most_ms, int(LEAST_MS + EACH_MS * due * self.shares)) if self.most_ms else 0


NO_LEAD = Lead()
