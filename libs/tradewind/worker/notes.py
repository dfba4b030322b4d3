"""What nodes report while they run, waiting to be sent: log lines and progress."""

import threading
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.server.sizes import size_of
from tradewind.worker.eager import UnconfirmedTokens

_MAX_ITEMS = 500
_MAX_BYTES = 1024 * 1024
MAX_LOG_LINES = 5000


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a node's log; `created_ns` counts from the epoch."""

    token: str
    level: str
    message: str
    created_ns: int


class Notes:
    """Holds a bounded number of lines, counting dropped ones, and the latest progress of each token.

    Notes of a token in `unconfirmed` are not taken before the node task manager knows the token. Any thread may call
    `progress` and `log`; everything else belongs to the loop's thread.
    """

    def __init__(self, unconfirmed: UnconfirmedTokens) -> None:
        self._unconfirmed = unconfirmed
        self._lock = threading.Lock()
        self._lines: deque[Line] = deque()
        self._withheld_lines: list[Line] = []
        self._unacknowledged = 0
        self._dropped: dict[str, int] = {}
        self._progress: dict[str, tuple[int, str, str]] = {}
        self._withheld_progress: dict[str, tuple[int, str, str]] = {}

    def __bool__(self) -> bool:
        """Return whether there is anything to take."""
        return bool(self._lines or self._progress)

    @property
    def has_lines(self) -> bool:
        """Whether lines wait, or dropped lines have yet to be reported."""
        return bool(self._lines or self._withheld_lines or self._dropped)

    def tokens_with_lines(self) -> set[str]:
        """Return the tokens with waiting lines, or with dropped lines that have yet to be reported."""
        with self._lock:
            return {line.token for line in self._lines} | self._dropped.keys()

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        """Note a node's progress, replacing progress that was not sent yet."""
        with self._lock:
            self._progress[token] = (percent, message, step)

    def log(self, line: Line) -> None:
        """Add a line, or count it as dropped when too many wait or are not acknowledged."""
        with self._lock:
            if len(self._lines) + len(self._withheld_lines) + self._unacknowledged < MAX_LOG_LINES:
                self._lines.append(line)
            else:
                self._dropped[line.token] = self._dropped.get(line.token, 0) + 1

    def forget_progress(self, token: str) -> None:
        """Drop the progress of a node that has completed, or was given back."""
        if self._progress:
            with self._lock:
                self._progress.pop(token, None)
        self._withheld_progress.pop(token, None)

    def take(self, request: work_pb2.WorkRequest) -> tuple[list[Line], int]:
        """Move waiting notes into a message, up to 500 of each and about 1 MiB; return the lines and all bytes."""
        lines: list[Line] = []
        if not (self or (self._dropped and self._unacknowledged < MAX_LOG_LINES)):
            return lines, 0
        size = 0
        with self._lock:
            while self._progress and len(request.progress) < _MAX_ITEMS:
                token, (percent, message, step) = self._progress.popitem()
                if token in self._unconfirmed:
                    self._withheld_progress[token] = (percent, message, step)
                    continue
                request.progress.add(token=token, progress=percent, message=message, current_step=step)
                size += size_of(message) + size_of(step)
            while self._lines and len(lines) < _MAX_ITEMS and size < _MAX_BYTES:
                line = self._lines.popleft()
                if line.token in self._unconfirmed:
                    self._withheld_lines.append(line)
                    continue
                lines.append(line)
                size += size_of(line.message)
            if not self._lines:
                now_ns = time.time_ns()
                for token, count in self._dropped.items():
                    text = f"{count} log lines were dropped here: this worker had too many to send"
                    lines.append(Line(token, "WARNING", text, now_ns))
                self._dropped = {}
            self._unacknowledged += len(lines)
        for line in lines:
            added = request.logs.add(token=line.token, level=line.level, message=line.message)
            added.created_at.seconds, added.created_at.nanos = divmod(line.created_ns, 1_000_000_000)
        return lines, size

    def acknowledge(self, count: int) -> bool:
        """Note that `count` lines have arrived; return whether dropped ones can be reported, now that there is room."""
        with self._lock:
            self._unacknowledged -= count
        return bool(self._dropped)

    def requeue(self, lines: Sequence[Line]) -> None:
        """Put lines that were taken but never acknowledged back in front."""
        with self._lock:
            self._lines.extendleft(reversed(lines))
            self._unacknowledged = 0

    def release(self) -> bool:
        """Queue notes that came too early again, to be taken or put aside once more; return whether there were any."""
        if not (self._withheld_lines or self._withheld_progress):
            return False
        with self._lock:
            self._lines.extendleft(reversed(self._withheld_lines))
            self._progress = self._withheld_progress | self._progress
            self._withheld_lines, self._withheld_progress = [], {}
        return True
