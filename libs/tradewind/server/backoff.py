"""How long to wait before retrying what has failed."""

import asyncio
import random


class Backoff:
    """Pauses between attempts: the first is at most `initial_s`; each is twice the previous one, up to `max_s`.

    Half of each pause is random, so that clients that failed together do not come back together.
    """

    def __init__(self, initial_s: float = 0.05, max_s: float = 5.0) -> None:
        self._initial_s = initial_s
        self._max_s = max_s
        self._next_max_s = initial_s

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._next_max_s = self._initial_s

    def next_s(self) -> float:
        """Return how long the next pause is."""
        longest_s, self._next_max_s = self._next_max_s, min(self._max_s, 2 * self._next_max_s)
        return longest_s * random.uniform(0.5, 1.0)

    async def pause(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self.next_s())
