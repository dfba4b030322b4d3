"""Notices when this process stood still: stopped, asleep with its machine, or with a blocked event loop."""

import time

from tradewind.server.beats import beat

_EVERY_S = 1.0
_STALL_S = 2.0
_AFTER_BREAK_S = 5.0


class StallDetector:
    """Knows since when this process has run without a break of 2 s, provided that `run` goes on beside it."""

    def __init__(self) -> None:
        self._last_seen_s = self._begun_s = self._running_since_s = time.monotonic()

    async def run(self) -> None:
        """Look once a second, forever."""
        while True:
            await beat(_EVERY_S)
            self.running_since_s()

    def running_since_s(self) -> float:
        """Return since when, by `time.monotonic`; after a break, that is when this or `run` first looks again."""
        now_s = time.monotonic()
        if now_s - self._last_seen_s > _STALL_S:
            self._running_since_s = now_s
        self._last_seen_s = now_s
        return self._running_since_s

    def just_went_on(self) -> bool:
        """Say whether a break ended less than 5 s ago: peers may have given this process up meanwhile."""
        since_s = self.running_since_s()
        return since_s > self._begun_s and self._last_seen_s < since_s + _AFTER_BREAK_S
