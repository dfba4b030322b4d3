"""Where time comes from: the system's clock, the store's own TIME, or a clock that a test moves."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time to Python code."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        ...


class SystemClock:
    """The machine's clock, for what Python itself has to time. Never returns 0."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms()


class ScriptTime:
    """The `now_ms` that production passes to every script: 0, which means the store's own TIME.

    Store adapters take `clock: Callable[[], int]`; give them one of these, or a `ManualClock` in a test.
    """

    def __call__(self) -> int:
        return 0


class ManualClock:
    """A clock that stands still until it is moved; serves as `Clock` and as the clock of a store adapter."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        if ms <= 0:
            raise ValueError(f"a manual clock starts after the epoch, not at {ms}: 0 means the store's own time")
        self._ms = ms

    def now_ms(self) -> int:
        return self._ms

    def __call__(self) -> int:
        return self._ms

    def advance(self, ms: int) -> int:
        """Move the clock forward by `ms` milliseconds and return the new time."""
        if ms < 0:
            raise ValueError(f"time does not go back (asked for {ms} ms)")
        self._ms += ms
        return self._ms
