"""Notices attempts whose deadline has passed, with one timer for all of them."""

import asyncio
import math
from collections.abc import Callable, Mapping

from tradewind.worker.attempt import Attempt
from tradewind.worker.times import MAX_S


class Deadlines:
    """Calls `expire(attempt)` for each held attempt whose deadline has passed.

    Nearly every attempt has a deadline and hardly any reaches it, so they share one timer: it is set for the earliest
    deadline seen, and checks the attempts that are still held when it fires.
    """

    def __init__(self, held: Mapping[str, Attempt], expire: Callable[[Attempt], None]) -> None:
        self._held = held
        self._expire = expire
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, deadline: float) -> None:
        """Make sure that attempts are checked when this deadline, by the loop's clock, passes."""
        if deadline < self._next:
            self._set(deadline)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, deadline: float) -> None:
        self.close()
        self._next = deadline
        # At least once a day: a message may hold a deadline that is too far away for a timer.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(min(deadline, loop.time() + MAX_S), self._check)

    def _check(self) -> None:
        self._next = math.inf
        now = asyncio.get_running_loop().time()
        for attempt in [attempt for attempt in self._held.values() if attempt.deadline <= now]:
            self._expire(attempt)
        self.watch(min((each.deadline for each in self._held.values() if each.stop is None), default=math.inf))
