"""When a failed attempt of a node is followed by another."""

import hashlib
from dataclasses import dataclass

from tradewind.node_task_manager.domain.node_task import TaskError

LONGEST_WAIT_MS = 365 * 24 * 3600 * 1000
"""What a node may ask for at most."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a node may be tried in all, and how long it waits between attempts; times in milliseconds.

    The n-th wait is `initial_ms` times `factor` to the power of n - 1, at most `max_ms`, less a part of it that is
    drawn between nothing and `jitter` (0 to 1). `non_retryable` names exceptions, or codes, that end it at once.
    """

    attempts: int
    initial_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.1
    non_retryable: tuple[str, ...] = ()

    def delay_ms(self, task_id: str, failures: int) -> int:
        """Return how long a node task waits after so many failures; what is drawn follows from the two."""
        delay = float(self.initial_ms)
        for _ in range(failures - 1):
            # Step by step, as the script does it: a power may differ in its last digit between machines.
            if delay >= self.max_ms or self.factor == 1:
                break
            delay *= self.factor
        digest = hashlib.sha1(f"{task_id}:{failures}".encode(), usedforsecurity=False).hexdigest()
        drawn = int(digest[:8], 16) / 2**32
        return int(min(delay, float(self.max_ms)) * (1 - self.jitter * drawn))

    def excludes(self, error: TaskError) -> str:
        """Return the type or code for which no further attempt is made, "" when the error is none of those."""
        return next((name for name in (error.type, error.code) if name and name in self.non_retryable), "")


@dataclass(frozen=True, slots=True)
class RetryWish:
    """What a failed attempt says of the next: to begin `after_ms` from now (None: by the policy), or to be `none`."""

    after_ms: int | None = None
    none: bool = False
