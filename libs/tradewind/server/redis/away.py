"""That the store is away, as a fault that callers who know no Redis understand."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from redis.exceptions import (
    ClusterError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    TimeoutError,
    TryAgainError,
)

from tradewind.server.faults import Unavailable
from tradewind.server.redis.connections import DiskFails, ReplicasMissing, StoreRefuses
from tradewind.server.spells import Spells

_UNREACHABLE = (ConnectionError, TimeoutError, ClusterError, RedisClusterException, TryAgainError)
MESSAGES: Mapping[type[Exception], str] = {
    **dict.fromkeys(_UNREACHABLE, "the store cannot be reached at the moment"),
    ReadOnlyError: "the store is read-only and takes no writes",
    OutOfMemoryError: "the store is out of memory and takes no writes",
    DiskFails: "the store cannot write to its disk and takes no writes",
    ReplicasMissing: "the store has too few replicas at hand and takes no writes",
    StoreRefuses: "the store refuses to do it at the moment",
}
"""What callers are told of what redis-py raises while the store, or the part of it that is asked, is of no use.

It leaves out what people who run this must know, such as which host is away: that is for the log."""
REASON = "STORE_UNAVAILABLE"
RETRY_S = 1.0

_AWAY = tuple(MESSAGES)


def message_of(error: Exception) -> str:
    """Return what callers are told of one of these."""
    return next(MESSAGES[kind] for kind in type(error).__mro__ if kind in MESSAGES)


@contextmanager
def away_as_fault(spells: Spells) -> Iterator[None]:
    """Raise Unavailable in the place of what redis-py raises while the store is away, and note it."""
    try:
        yield
    except _AWAY as error:
        message = message_of(error)
        spells.note(message, error=error)
        raise Unavailable(REASON, message, RETRY_S) from error
