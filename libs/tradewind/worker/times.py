"""Lengths of time in messages, as seconds that a timer can be set to."""

from google.protobuf.duration_pb2 import Duration

MAX_S = 86_400.0


def seconds_of(span: Duration, max_s: float = MAX_S) -> float:
    """Return the length of a span in seconds, at least 0 and at most `max_s`."""
    return min(max_s, max(0.0, span.seconds + span.nanos / 1e9))
