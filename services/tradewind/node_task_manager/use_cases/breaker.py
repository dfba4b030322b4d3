"""Leaving alone for a while what does not answer."""

import time
from collections.abc import Callable

_FIRST_S, _LONGEST_S = 1.0, 30.0


class Breaker:
    """Closed while all is well. A failure opens it, for 1 s at first and twice as long each further time, up to 30 s;
    when that is over it is tried again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause_s = 0.0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it is to be left alone now."""
        return self._clock() < self._open_until

    def succeeded(self) -> None:
        """It answered."""
        self._pause_s = 0.0

    def failed(self) -> None:
        """It did not answer; of several at the same time the first counts."""
        if not self.is_open:
            self._pause_s = min(_LONGEST_S, self._pause_s * 2 or _FIRST_S)
            self._open_until = self._clock() + self._pause_s
