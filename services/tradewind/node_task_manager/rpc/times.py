"""Times and durations of messages that may be absent, and which stores can hold."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.server import timestamps

_LONGEST_S = 100 * 366 * 24 * 3600


def timestamp(ms: int) -> Timestamp | None:
    """Return epoch milliseconds as a Timestamp, None for 0."""
    return timestamps.timestamp(ms) if ms else None


def duration(seconds: float) -> Duration | None:
    """Return a length of time, None for 0."""
    if not seconds:
        return None
    message = Duration()
    message.FromMilliseconds(round(seconds * 1000))
    return message


def is_duration(value: Duration) -> bool:
    """Say whether stores can hold a Duration: up to 100 years, not negative."""
    return 0 <= value.seconds <= _LONGEST_S and 0 <= value.nanos < 1_000_000_000
