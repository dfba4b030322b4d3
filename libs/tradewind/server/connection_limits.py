"""Limits of connections: how many there may be, how long they may be idle, and how dead ones are found."""

import resource
from contextlib import suppress

from tradewind.grpc_engine import FIXED_WINDOW
from tradewind.server.open_files import ALLOW_MORE

MAX_IDLE_S = 1800.0
"""A connection without calls is closed after this time; its client reconnects at the next call."""

_SPARE_FILES = 256
"""How many of a process's open files are kept for its store, its peers and its logs, or half if it has few."""
_LEAST_FILES = 256
"""How many open files a server must be allowed: while it starts, a stack uses 50."""
_HANDSHAKE_TIMEOUT_MS = 30_000
_PING_EVERY_MS = 30_000
_PONG_WITHIN_MS = 10_000
_MAX_WAITING_CALLS = 10_000
"""How many calls may wait until Python takes them. Beyond the core's own limit of 1000, a server that is busy for a
moment would end ever more of them with CANCELLED, without a reason. Each takes 13 KiB, whoever has sent it: without a
limit, callers could fill the memory of a server that has yet to see whether they have a token."""
_MAX_MS = 2**31 - 1
"""The largest number that gRPC accepts, which it takes for "no limit"; as a time it would be 25 days."""


class TooFewFilesError(Exception):
    """A server cannot run with as few open files as the system allows; the message says what to do."""


def raise_open_files() -> None:
    """Raise this process's limit of open files as far as the system allows; each connection takes one.

    Raises TooFewFilesError when a server does not get along with it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS says "no limit" and then refuses that number.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _LEAST_FILES:
        raise TooFewFilesError(f"{soft} open files are allowed, and a server needs {_LEAST_FILES}: {ALLOW_MORE}")


def max_open_connections() -> int:
    """Return how many connections leave enough open files for the store and the peers; 0 for any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 2, soft - _SPARE_FILES) if soft != resource.RLIM_INFINITY else 0


def connection_options(
    age_s: float = 0.0, idle_s: float = MAX_IDLE_S, max_connections: int = 0
) -> list[tuple[str, int | str]]:
    """Return a server's gRPC options; 0 means no limit of age or idleness, and as many connections as open files allow.

    A connection is closed when it has not completed its handshake after 30 s, or does not answer a ping within 10 s.
    Clients may ping every 4 s.
    """
    limits = {
        # Only new calls go elsewhere: without a grace period, streams on the old connection may go on.
        "grpc.max_connection_age_ms": int(min(age_s * 1000, _MAX_MS)),
        "grpc.max_connection_idle_ms": int(min(idle_s * 1000, _MAX_MS)),
        "grpc.max_allowed_incoming_connections": max_connections or max_open_connections(),
    }
    return [
        *FIXED_WINDOW,
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.server.max_pending_requests", _MAX_WAITING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_WAITING_CALLS),
        ("grpc.keepalive_time_ms", _PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", _PONG_WITHIN_MS),
        # By default, the core gives a peer that takes bytes but answers no ping a minute.
        ("grpc.http2.ping_timeout_ms", _PONG_WITHIN_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Clients that ping more often than this while nothing is sent are cut off; the core's default is 5 minutes.
        ("grpc.http2.min_ping_interval_without_data_ms", 4_000),
        *((name, limit) for name, limit in limits.items() if limit),
    ]
