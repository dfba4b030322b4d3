"""When a failed attempt of a node is followed by another."""

import hashlib
from dataclasses import dataclass

from tradewind.node_task_manager.domain.node_task import TaskError

LONGEST_WAIT_MS = 365 * 24 * 3600 * 1000
"""The longest wait that a node may ask for."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many attempts a node may have in all, and how long it waits between them; times in milliseconds.

    The n-th wait is `initial_ms` times `factor` to the power of n - 1, at most `max_ms`, less a random share of it
    between 0 and `jitter` (0 to 1). `non_retryable` names exceptions, or codes, after which no attempt follows.
    """

    attempts: int
    initial_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.1
    non_retryable: tuple[str, ...] = ()

    def delay_ms(self, task_id: str, failures: int) -> int:
        """Return how long a node task waits after its latest failure; the random share follows from the arguments."""
        delay = float(self.initial_ms)
        for _ in range(failures - 1):
            # Multiplied step by step, as in the script: the last digit of a power may differ between machines.
            if delay >= self.max_ms or self.factor == 1:
                break
            delay *= self.factor
        digest = hashlib.sha1(f"{task_id}:{failures}".encode(), usedforsecurity=False).hexdigest()
        drawn = int(digest[:8], 16) / 2**32
        return int(min(delay, float(self.max_ms)) * (1 - self.jitter * drawn))

    def excludes(self, error: TaskError) -> str:
        """Return the error's type or code if that rules out a further attempt, else ""."""
        return next((name for name in (error.type, error.code) if name and name in self.non_retryable), "")


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """What a failed attempt asks of the next: to begin `after_ms` from now (None: by the policy), or to be `none`."""

    after_ms: int | None = None
    none: bool = False
