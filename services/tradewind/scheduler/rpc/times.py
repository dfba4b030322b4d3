"""Reads times and durations of requests."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.server.all_faults import require
from tradewind.server.timestamps import instant_fault, instant_ms


def ms_of(message: Message, field: str, within: str = "") -> int:
    """Return a timestamp field in milliseconds since the epoch, 0 when it is not set.

    Raises InvalidInput, with a path that begins with `within`, when the time is outside the years 1970 to 9999.
    """
    if not message.HasField(field):
        return 0
    stamp: Timestamp = getattr(message, field)
    require([instant_fault(within + field, stamp)])
    return instant_ms(stamp)


def seconds_of(message: Message, field: str) -> float:
    """Return a duration field in seconds, 0 when it is not set."""
    if not message.HasField(field):
        return 0.0
    duration: Duration = getattr(message, field)
    return duration.seconds + duration.nanos / 1e9
