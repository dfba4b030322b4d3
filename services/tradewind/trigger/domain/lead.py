"""How long before their time triggers are delivered to a receiver that wants to be ready in time."""

from dataclasses import dataclass

LEAST_MS = 50
"""What one trigger by itself needs from the store to a worker, on a busy machine."""

EACH_MS = 0.8
"""What each further one adds of those that are due at the same time."""


@dataclass(frozen=True, slots=True)
class Lead:
    """At most `most_ms`. `shares`: of how many partitions, alike, the receiver gets what is due."""

    most_ms: int = 0
    shares: int = 1

    def for_count(self, due: int) -> int:
        """Return the lead in milliseconds where `due` triggers of one partition come within the longest one."""
        return min(self.most_ms, int(LEAST_MS + EACH_MS * due * self.shares)) if self.most_ms else 0


NO_LEAD = Lead()
