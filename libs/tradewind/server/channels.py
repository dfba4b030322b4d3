"""Addresses of servers, and the one place that opens a gRPC channel to another one."""

from functools import partial
from typing import Protocol

import grpc

from tradewind.grpc_engine import CONNECT_WITHIN_MS
from tradewind.server.settings import TlsSettings
from tradewind.server.telemetry import TraceUnaryStreamInterceptor, TraceUnaryUnaryInterceptor
from tradewind.tls.channels import Security
from tradewind.tls.channels import open_channel as open_secured

MESSAGE_BYTES = 4 * 1024 * 1024
MESSAGE_SLACK = 64 * 1024
"""What an envelope may add to a payload that is within the limit by itself."""

MAX_METADATA_BYTES = 64 * 1024
"""The largest metadata of a call; error details travel in it."""

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where this machine reaches a server that listens on every interface."""


class OpenChannel(Protocol):
    """Opens a channel as `open_channel` does."""

    def __call__(self, address: str, *, traced: bool = True) -> grpc.aio.Channel: ...


def address_of(host: str, port: int) -> str:
    """Return `host:port`, with the host in brackets if it is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_address_of(host: str, port: int) -> str:
    """Return the address at which this machine reaches a server that listens on `host`."""
    return address_of(_LOOPBACK.get(host, host), port)


def open_channel(address: str, *, traced: bool = True, security: Security = None) -> grpc.aio.Channel:
    """Return a channel to `address`; it connects at its first call and reconnects by itself, within seconds.

    `address` is `host:port`, whose resolved addresses are all used in turn, or a gRPC target such as `unix:/path`.
    The caller closes the channel, passes `timeout=` on every call, and retries only idempotent calls. `traced` calls
    carry the current `traceparent`, which costs each unary call about 0.1 ms; turn it off where nothing is recorded.
    Speaks plain text without `security`, else TLS. Raises ValueError for another address, TlsError for bad files.
    """
    message_bytes = MESSAGE_BYTES + MESSAGE_SLACK
    options = [
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.min_reconnect_backoff_ms", CONNECT_WITHIN_MS),
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    ]
    interceptors = [TraceUnaryUnaryInterceptor(), TraceUnaryStreamInterceptor()] if traced else None
    return open_secured(address, security, options, interceptors)


def channels_of(settings: TlsSettings) -> OpenChannel:
    """Return a function that opens channels to other servers with the certificates from the settings."""
    return partial(open_channel, security=settings.tls_files())
