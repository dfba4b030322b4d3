"""Protobuf's times and durations in milliseconds."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def milliseconds(value: Timestamp | Duration) -> int:
    """Return a Timestamp, since the epoch, or a Duration in whole milliseconds; 0 for one that is not set."""
    return value.seconds * 1000 + value.nanos // 1_000_000


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
