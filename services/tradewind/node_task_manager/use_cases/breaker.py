"""A circuit breaker: leaves a cache that does not answer alone for a while."""

from collections.abc import Callable

import structlog

_FIRST_S, _LONGEST_S = 1.0, 30.0
_log = structlog.get_logger(__name__)


class Breaker:
    """Closed while all is well. A failure opens it for 1 s, each further one for twice as long, up to 30 s; after that
    the cache is tried again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pause_s = 0.0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the cache is to be left alone now."""
        return self._clock() < self._open_until

    def succeeded(self) -> None:
        """Note that the cache answered."""
        self._pause_s = 0.0

    def failed(self, error: Exception) -> None:
        """Note that the cache did not answer; of several failures at the same time, only the first counts."""
        if not self.is_open:
            _log.warning("cache_unavailable", error=error)
            self._pause_s = min(_LONGEST_S, self._pause_s * 2 or _FIRST_S)
            self._open_until = self._clock() + self._pause_s
