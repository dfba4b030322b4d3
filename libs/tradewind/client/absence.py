"""How long the server at the other end of a stream has been away."""

import time

STEADY_S = 5.0
"""Seconds after which a stream that is still open must have a server, even a silent one: connecting fails sooner."""


class Absence:
    """Measures the time since the last stream with a server ended, however long that stream was silent."""

    def __init__(self) -> None:
        self._opened = time.monotonic()
        self._since: float | None = None

    def stream_opening(self) -> None:
        """Note that a stream is about to be opened."""
        self._opened = time.monotonic()

    def received(self) -> None:
        """Note that something came over the stream."""
        self._since = None

    def stream_broken(self) -> float:
        """Note that the stream has broken; return for how many seconds the server has been away: 0 if only now."""
        now = time.monotonic()
        if self._since is None or now - self._opened >= STEADY_S:
            self._since = now
        return now - self._since
