"""How long the server at the other end of a stream has been away."""

import time

from tradewind.client.errors import Unavailable

STEADY_S = 5.0
"""Seconds after which a stream that is still open must have a server, even a silent one: connecting fails sooner."""


class Absence:
    """Measures the time since the last stream with a server ended, however long that stream was silent."""

    def __init__(self) -> None:
        self.met = False
        """Whether any stream has had a server."""
        self._opened = time.monotonic()
        self._since: float | None = None

    def stream_opening(self) -> None:
        """Note that a stream is about to be opened."""
        self._opened = time.monotonic()

    def received(self) -> None:
        """Note that something came over the stream."""
        self.met = True
        self._since = None

    def stream_broken(self, error: Unavailable) -> float:
        """Note what broke the stream; return for how many seconds the server has been away: 0 if only now."""
        now = time.monotonic()
        if now - self._opened >= STEADY_S or error.reason == "DRAINING":
            self.received()
        if self._since is None:
            self._since = now
        return now - self._since
