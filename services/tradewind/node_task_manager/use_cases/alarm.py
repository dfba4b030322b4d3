"""One call in the future, at the earliest of the times it was asked for."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` once, at the earliest time asked for, and then waits to be set again."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        # Not asked of the timer: for what is due at once, uvloop makes one that does not know its time.
        self._at_s = 0.0

    def set(self, seconds: float) -> None:
        """Ring after `seconds`, unless it rings sooner anyway."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + seconds
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s = at_s
        self._timer = loop.call_later(seconds, self._on_timer)

    @property
    def is_set(self) -> bool:
        """Whether it is going to ring."""
        return self._timer is not None

    def cancel(self) -> None:
        """Do not ring any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._ring()
