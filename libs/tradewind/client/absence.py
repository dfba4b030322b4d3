"""How long a server has been away that is listened to."""

import time

STEADY_S = 5.0
"""Seconds after which a stream that is still open has a server, even if it is silent: connecting fails sooner."""


class Absence:
    """Measures from the end of the last stream that had a server, however long that one was silent."""

    def __init__(self) -> None:
        self._opened = time.monotonic()
        self._since: float | None = None

    def opening(self) -> None:
        """A stream is about to be opened."""
        self._opened = time.monotonic()

    def heard(self) -> None:
        """Something came over the stream."""
        self._since = None

    def lasts(self, patience: float) -> bool:
        """The stream has broken; say whether no server has been there for `patience` seconds."""
        now = time.monotonic()
        if self._since is None or now - self._opened >= STEADY_S:
            self._since = now
        return now - self._since >= patience
