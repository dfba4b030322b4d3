"""Tells records that somebody has changed by hand from faults of the code that reads them."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import structlog

from tradewind.server.faults import Unreadable
from tradewind.server.incidents import IncidentLog

_FAULTS = (ValueError, LookupError, TypeError, OverflowError, msgspec.MsgspecError)
"""What decoding such a record raises."""


@contextmanager
def reading(key: str, *replies: object) -> Iterator[None]:
    """Raise Unreadable instead of what decoding the record under `key` raises, or the one that a reply to it is."""
    for reply in replies:
        if isinstance(reply, Unreadable):
            raise reply
    try:
        yield
    except _FAULTS as error:
        raise Unreadable(key, repr(error)) from error


class UnreadableLog:
    """Logs each record that cannot be read once, by its key, and once more when that no longer happens."""

    def __init__(self, name: str) -> None:
        """Log to the logger of this name."""
        self._incidents = IncidentLog(structlog.get_logger(name), "record_unreadable", "record_readable_again")

    def note(self, error: Unreadable, **facts: object) -> None:
        """Note that a record could not be read, perhaps again."""
        self._incidents.note(error.key, error=error, **facts)
