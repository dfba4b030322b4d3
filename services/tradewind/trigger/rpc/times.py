"""Times and durations as messages."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(ms: int) -> Timestamp:
    """Return milliseconds since the epoch as a message."""
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def duration(ms: int) -> Duration:
    """Return milliseconds as a message."""
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
