"""How often watchers get messages while much changes: a message costs about as much whatever it holds."""

import asyncio

MESSAGES_A_SECOND = 1000
"""How many messages all watchers together get, when changes keep coming."""
BURST = 1000
"""How many messages they get at once after a quiet second."""


class WatchPace:
    """Gives each message of any watcher its moment, so that many watchers of a busy flow do not slow down its runs.

    What changes until that moment goes with the message.
    """

    def __init__(self) -> None:
        self._next_s = 0.0

    def next_in(self) -> float:
        """Return in how many seconds the next message of a watcher may go; 0 at once."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s - BURST / MESSAGES_A_SECOND) + 1 / MESSAGES_A_SECOND
        return max(0.0, self._next_s - now_s)
