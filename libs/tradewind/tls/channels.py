"""Opens client channels: to which target, how secured, and with the options that every channel has."""

import json
import os
import re
import threading
import time
from collections.abc import Sequence
from typing import TypeAlias
from weakref import WeakSet

import grpc

from tradewind.grpc_engine import FIXED_WINDOW
from tradewind.tls.files import TlsFiles, WatchedFiles
from tradewind.tls.renewed_channel import RenewedChannel

Security: TypeAlias = grpc.ChannelCredentials | TlsFiles | None
"""How a client connects: with fixed credentials, with files that can be replaced, or, for None, in plain text."""

Options: TypeAlias = Sequence[tuple[str, int | str]]
Interceptors: TypeAlias = Sequence[grpc.aio.ClientInterceptor] | None

TARGETS = ("dns:", "unix:", "unix-abstract:", "ipv4:", "ipv6:")
"""Prefixes of an address that gRPC takes unchanged."""

_HOST = re.compile(r"\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]|[^\s:/@,\[\]]+")
"""A name, an IPv4 address, or an IPv6 address in brackets."""

_EVERY_CHANNEL: Options = (
    *FIXED_WINDOW,
    # Streams and calls are spread over all replicas, and a retry may reach another one.
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # A hanging peer must be dropped long before the leases of its workers lapse. gRPC's own threads answer, however
    # busy Python is.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # By default, the core gives a peer that takes bytes but answers no ping a minute.
    ("grpc.http2.ping_timeout_ms", 3_000),
    # Callers pace their own retries; gRPC's own pauses would come on top: up to two minutes before it reconnects,
    # and 30 s before it looks up a name again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
)

FORKED = (
    "this process was forked from one with open connections; it does not inherit them, and cannot open new ones: close "
    'clients and stop workers before forking, or start the process differently, as multiprocessing does with "spawn"'
)

_open: WeakSet[grpc.aio.Channel] = WeakSet()
_forked_with_channels = False
"""Whether this process shares gRPC's wake-up mechanism with its parent, so that calls would hang in both."""


_ending = False
"""Whether gRPC may still be ending its threads, which it begins to do when the last channel is gone."""
_END_WITHIN = 0.5
"""Seconds that a fork waits for these threads to end. It mostly takes a millisecond."""


def security_of(given: Security) -> Security:
    """Return the given security, or else what the TRADEWIND_TLS_* variables say. Raises TypeError for anything else."""
    if given is None:
        return TlsFiles.find()
    if not isinstance(given, TlsFiles | grpc.ChannelCredentials):
        raise TypeError(
            'credentials must be TlsFiles, such as TlsFiles(ca="ca.pem"), or the ChannelCredentials of gRPC, not a '
            f"value of type {type(given).__name__}"
        )
    return given


def target_of(address: str) -> str:
    """Return the gRPC target, whose addresses are all used in turn.

    Raises ValueError unless it is `host:port`, TypeError unless it is text.
    """
    if not isinstance(address, str):
        kind = type(address).__name__
        raise TypeError(f'an address must be text, such as "localhost:7700", not a value of type {kind}')
    if address.startswith(TARGETS):
        return address
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f'"{address}" is not the address of a server: give host:port, such as localhost:7700')
    return f"dns:///{address}"


def open_channel(
    address: str, security: Security, options: Options, interceptors: Interceptors = None
) -> grpc.aio.Channel:
    """Return a channel to `host:port` or a gRPC target; it connects at its first call.

    Raises ValueError for another address, TlsError when files are not good, RuntimeError in a process forked from one
    with open channels.
    """
    if _forked_with_channels:
        raise RuntimeError(FORKED)
    channel = _create_channel(target_of(address), security, [*_EVERY_CHANNEL, *options], interceptors)
    global _ending
    _ending = True
    _open.add(channel)
    return channel


def _create_channel(target: str, security: Security, options: Options, interceptors: Interceptors) -> grpc.aio.Channel:
    if security is None:
        return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    if isinstance(security, grpc.ChannelCredentials):
        return grpc.aio.secure_channel(target, security, options=options, interceptors=interceptors)
    if security.server_name:
        options = [*options, ("grpc.ssl_target_name_override", security.server_name)]

    def opened(credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(target, credentials, options=options, interceptors=interceptors)

    return RenewedChannel(WatchedFiles(security), opened)


def _before_fork() -> None:
    """Let gRPC end if no channel is open any more: calls of a process that is forked meanwhile would hang."""
    global _ending
    if _ending and not _open:
        until = time.monotonic() + _END_WITHIN
        while _has_foreign_threads() and time.monotonic() < until:
            time.sleep(0.001)
        _ending = False


def _has_foreign_threads() -> bool:
    """Return whether threads run that Python has not started, as far as the system tells."""
    try:
        return len(os.listdir("/proc/self/task")) > threading.active_count()
    except OSError:
        return False


def _after_fork() -> None:
    global _forked_with_channels
    _forked_with_channels = _forked_with_channels or bool(_open)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
