"""The messages that were acknowledged last, to be sent again when the store has lost its last second."""

import time
from collections import deque

from tradewind.worker.outcomes import Sent

RESYNC_S = 5.0
RESYNC_MESSAGES = 2000
RESYNC_BYTES = 64 * 1024 * 1024


class AcknowledgedMessages:
    """Keeps what was acknowledged in the 5 s before the last acknowledgement, within limits of number and size.

    These 5 s do not end now: an outage may have been longer than that.
    """

    def __init__(self) -> None:
        self._messages: deque[tuple[float, Sent]] = deque()
        self._bytes = 0

    def add(self, sent: Sent) -> None:
        """Keep a message that is acknowledged now, and forget those that are too old or too many."""
        now = time.monotonic()
        self._messages.append((now, sent))
        self._bytes += sent.size
        while self._messages and (
            self._messages[0][0] < now - RESYNC_S or len(self._messages) > RESYNC_MESSAGES or self._bytes > RESYNC_BYTES
        ):
            self._bytes -= self._messages.popleft()[1].size

    def take(self) -> list[Sent]:
        """Return the messages, the oldest first, and keep none."""
        messages = [sent for _, sent in self._messages]
        self._messages.clear()
        self._bytes = 0
        return messages

    def report_of(self, token: str) -> Sent | None:
        """Return a message with nothing but the completion or failure of a token; None if that is not kept."""
        for _, sent in self._messages:
            report = sent.report_of(token)
            if report:
                return report
        return None
