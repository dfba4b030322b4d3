"""Protobuf's times and durations in milliseconds."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.server.faults import Violation
from tradewind.server.schedules.grids import LAST_MS

NOT_AN_INSTANT = "must be a time from 1970 to 9999"
"""What is wrong with a time that stores and clients cannot hold."""
_LAST_SECOND = LAST_MS // 1000


def milliseconds(value: Timestamp | Duration) -> int:
    """Return a Timestamp, since the epoch, or a Duration in whole milliseconds; 0 for one that is not set."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def instant_ms(value: Timestamp) -> int:
    """Return a Timestamp in epoch milliseconds, 0 for one that is not set; -1 unless stores and clients can hold it."""
    seconds, nanos = value.seconds, value.nanos
    valid = 0 <= seconds <= _LAST_SECOND and 0 <= nanos < 1_000_000_000
    return seconds * 1000 + nanos // 1_000_000 if valid else -1


def instant_fault(path: str, value: Timestamp) -> Violation | None:
    """Return the fault of a time that stores and clients cannot hold, None when it has none."""
    return Violation(path, NOT_AN_INSTANT) if instant_ms(value) < 0 else None


def set_timestamp(value: Timestamp, ms: int) -> None:
    """Set an empty Timestamp within a message to epoch milliseconds: that costs less than copying one into it."""
    value.seconds = ms // 1000
    if rest := ms % 1000:
        value.nanos = rest * 1_000_000


def timestamp(ms: int) -> Timestamp:
    """Return epoch milliseconds as a Timestamp."""
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def duration(ms: int) -> Duration:
    """Return milliseconds as a Duration."""
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
