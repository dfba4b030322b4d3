"""Times and durations of messages that may be absent, and what stores can hold of them."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.server import timestamps

_LAST_SECOND = 253_402_300_799
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


def is_instant(value: Timestamp) -> bool:
    """Say whether stores and clients can hold a Timestamp: 1970 to 9999."""
    return instant_ms(value) >= 0


def instant_ms(value: Timestamp) -> int:
    """Return a Timestamp in epoch milliseconds, 0 for one that is not set; -1 unless stores and clients can hold it."""
    seconds, nanos = value.seconds, value.nanos
    valid = 0 <= seconds <= _LAST_SECOND and 0 <= nanos < 1_000_000_000
    return seconds * 1000 + nanos // 1_000_000 if valid else -1


def is_duration(value: Duration) -> bool:
    """Say whether stores can hold a Duration: up to 100 years, not negative."""
    return 0 <= value.seconds <= _LONGEST_S and 0 <= value.nanos < 1_000_000_000
