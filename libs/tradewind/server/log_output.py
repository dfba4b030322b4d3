"""Where logs go: to stderr, unless nobody takes them there."""

import select
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, ClassVar, TextIO

_PIECE = select.PIPE_BUF // 4
"""Characters, of 4 bytes at most, for which a pipe with any room is sure to have room."""
_PATIENCE_MS = 100
_IMPATIENT_S = 1.0
"""For how long nothing is waited for after a loss: a reader that hangs must not hold the process up."""


class StandardError:
    """The process's original stderr, whatever replaces it at the moment; text that it does not accept is lost.

    A log must never break the work that it reports on, nor hold it up. Whoever writes has to lock it.
    """

    lost: ClassVar[int] = 0
    """How many lines of this process were lost since one was written."""
    _impatient_until_s: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self._text = ""

    def write(self, text: str) -> None:
        """Keep text until it is flushed."""
        self._text += text

    def flush(self) -> None:
        """Write what was kept, or lose it."""
        text, self._text = self._text, ""
        with suppress(OSError, ValueError, AttributeError):
            if self._write(sys.__stderr__, text):  # type: ignore[arg-type]  # A process may have none.
                StandardError.lost = 0
            else:
                StandardError.lost += 1

    def _write(self, stream: TextIO, text: str) -> bool:
        for start in range(0, len(text), _PIECE):
            if not _has_room(stream, 0 if time.monotonic() < self._impatient_until_s else _PATIENCE_MS):
                StandardError._impatient_until_s = time.monotonic() + _IMPATIENT_S
                # The next line must not go on with half of this one.
                self._text = "\n" if start else ""
                return False
            stream.write(text[start : start + _PIECE])
            stream.flush()
        return True


def tell_loss(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Say in an event how many lines before it were lost."""
    if StandardError.lost:
        event["lines_lost"] = StandardError.lost
    return event


def _has_room(stream: TextIO, wait_ms: int) -> bool:
    try:
        number = stream.fileno()
    except OSError:
        return True
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return bool(poll.poll(wait_ms))
