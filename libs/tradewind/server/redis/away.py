"""That the store is away, as a fault that callers who know no Redis understand."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from redis.exceptions import (
    ClusterError,
    ConnectionError,
    ReadOnlyError,
    RedisClusterException,
    TimeoutError,
    TryAgainError,
)

from tradewind.server.faults import Unavailable

AWAY: tuple[type[Exception], ...] = (
    ConnectionError,
    TimeoutError,
    ReadOnlyError,
    ClusterError,
    RedisClusterException,
    TryAgainError,
)
"""What redis-py raises while the store, or the part of it that is asked, cannot be reached."""
REASON = "STORE_UNAVAILABLE"
MESSAGE = "the store cannot be reached at the moment"
RETRY_S = 1.0

_log = structlog.get_logger(__name__)


@contextmanager
def away_as_fault() -> Iterator[None]:
    """Raise Unavailable in the place of what redis-py raises while the store is away."""
    try:
        yield
    except AWAY as error:
        # What callers are told leaves out what people who run this must know, such as which host is away.
        _log.warning("store_away", error=f"{type(error).__name__}: {error}")
        raise Unavailable(REASON, MESSAGE, RETRY_S) from error
