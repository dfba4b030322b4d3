"""Turns an unavailable store into a fault that callers understand without knowing Redis."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from redis.exceptions import (
    ClusterError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    TimeoutError,
    TryAgainError,
)

from tradewind.server.faults import Unavailable
from tradewind.server.incidents import IncidentLog
from tradewind.server.redis.connections import DiskFails, ReplicasMissing, StoreBusy

_UNREACHABLE = (ConnectionError, TimeoutError, ClusterError, RedisClusterException, TryAgainError)
MESSAGES: Mapping[type[Exception], str] = {
    **dict.fromkeys(_UNREACHABLE, "the store cannot be reached at the moment"),
    ReadOnlyError: "the store is read-only and accepts no writes",
    OutOfMemoryError: "the store is out of memory and accepts no writes",
    DiskFails: "the store cannot write to its disk, which may be full, and accepts no writes",
    ReplicasMissing: "the store has too few replicas and accepts no writes",
    StoreBusy: "a script keeps the store so busy that it answers nothing else",
    NoPermissionError: "the store does not permit this to its user",
}
"""What callers get for redis-py's exceptions while the store, or the part of it they need, is unusable.

It leaves out what operators need to know, such as which host is away: that goes to the log."""
REASON = "STORE_UNAVAILABLE"
RETRY_S = 1.0

_OUTAGES = tuple(MESSAGES)


def message_of(error: Exception) -> str:
    """Return the message to callers for one of these exceptions."""
    return next(MESSAGES[kind] for kind in type(error).__mro__ if kind in MESSAGES)


def is_outage(message: str | None) -> bool:
    """Return whether a message is what callers get while a store is unusable, whichever server sends it."""
    return message in MESSAGES.values()


@contextmanager
def outage_as_fault(incidents: IncidentLog) -> Iterator[None]:
    """Raise Unavailable instead of redis-py's exceptions while the store is away, and note them."""
    try:
        yield
    except _OUTAGES as error:
        message = message_of(error)
        incidents.note(message, error=error)
        raise Unavailable(REASON, message, RETRY_S) from error
