"""How long to wait before retrying what has failed."""

import asyncio
import random


class Backoff:
    """Pauses between attempts: the first is at most `first_s`; each is twice the previous one, up to `most_s`.

    Half of each pause is random, so that clients that failed together do not come back together.
    """

    def __init__(self, first_s: float = 0.05, most_s: float = 5.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._longest_s = first_s

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._longest_s = self._first_s

    def next_s(self) -> float:
        """Return how long the next pause is."""
        longest_s, self._longest_s = self._longest_s, min(self._most_s, 2 * self._longest_s)
        return longest_s * random.uniform(0.5, 1.0)

    async def pause(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self.next_s())
