"""Client channels that use new certificates for new connections."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakSet

import grpc

from tradewind.grpc_engine import FIXED_WINDOW
from tradewind.tls.files import Pem, TlsFiles, WatchedFiles

Security: TypeAlias = grpc.ChannelCredentials | TlsFiles | None
"""How a client connects: with fixed credentials, with files that can be replaced, or, for None, in plain text."""

Options: TypeAlias = Sequence[tuple[str, int | str]]
Interceptors: TypeAlias = Sequence[grpc.aio.ClientInterceptor] | None

TARGETS = ("dns:", "unix:", "unix-abstract:", "ipv4:", "ipv6:")
"""Prefixes of an address that gRPC takes unchanged."""

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

_LINGER_S = 600.0
"""How long calls in flight over a connection with an older certificate may go on."""
_REPLACED = "the connection with the previous certificate was closed: call again"


def security_of(given: Security) -> Security:
    """Return the given security, or else what the TRADEWIND_TLS_* variables say."""
    return given if given is not None else TlsFiles.find()


def target_of(address: str) -> str:
    """Return the gRPC target, whose addresses are all used in turn. Raises ValueError unless it is `host:port`."""
    if address.startswith(TARGETS):
        return address
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ValueError(f'"{address}" is not the address of a server: give host:port, such as localhost:7700')
    return f"dns:///{address}"


def open_channel(
    target: str, security: Security, options: Options, interceptors: Interceptors = None
) -> grpc.aio.Channel:
    """Return a channel to a gRPC target.

    Raises TlsError when files are not good, RuntimeError in a process forked from one with open channels.
    """
    if _forked_with_channels:
        raise RuntimeError(FORKED)
    channel = _create_channel(target, security, [*_EVERY_CHANNEL, *options], interceptors)
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


def _after_fork() -> None:
    global _forked_with_channels
    _forked_with_channels = _forked_with_channels or bool(_open)


os.register_at_fork(after_in_child=_after_fork)


class RenewedChannel(grpc.aio.Channel):
    """A channel that is reopened when its files are replaced: gRPC's own channels keep their first certificate.

    Each call uses the newest channel; calls in flight go on over theirs, for ten minutes at most.
    """

    def __init__(self, files: WatchedFiles, opened: Callable[[grpc.ChannelCredentials], grpc.aio.Channel]) -> None:
        self.closed = False
        self._files = files
        self._create_channel = opened
        self._pem = files.current()
        self._channel = opened(_credentials(self._pem))
        self._closing: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def current(self) -> grpc.aio.Channel:
        """Return the channel for the next call."""
        pem = self._files.current()
        if pem is not self._pem:
            previous, self._pem, self._channel = self._channel, pem, self._create_channel(_credentials(pem))
            closing = asyncio.get_running_loop().create_task(previous.close(_LINGER_S))
            self._closing[closing] = previous
            closing.add_done_callback(self._closing.pop)
        return self._channel

    async def __aenter__(self) -> "RenewedChannel":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close the channel and its predecessors."""
        self.closed = True
        closing = dict(self._closing)
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        for channel in (*closing.values(), self._channel):
            await channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self.current().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.current().channel_ready()

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, method, "unary_unary", args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, method, "unary_stream", args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, method, "stream_unary", args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, method, "stream_stream", args, kwargs)


class _Method:
    """A method on the channel that is newest at each call."""

    def __init__(
        self, owner: RenewedChannel, method: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._method = method.encode()
        self._owner = owner
        self._name = method
        self._kind = kind
        self._args = args
        self._kwargs = kwargs
        self._channel: grpc.aio.Channel | None = None
        self._call: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        channel = self._owner.current()
        if channel is not self._channel:
            self._channel = channel
            self._call = getattr(channel, self._kind)(self._name, *self._args, **self._kwargs)
        call = self._call(*args, **kwargs)
        return _Stream(call, self._owner) if self._kind.endswith("_stream") else call


class _Stream:
    """A call with a streamed response; it ends as UNAVAILABLE when it is cut off with an older connection.

    gRPC would make the reader believe that its own task was cancelled. Other attributes are those of the call.
    """

    def __init__(self, call: Any, owner: RenewedChannel) -> None:
        self._call = call
        self._owner = owner
        self._cancelled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def cancel(self) -> bool:
        self._cancelled = True
        return bool(self._call.cancel())

    async def read(self) -> Any:
        try:
            return await self._call.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled or self._owner.closed or task is None or task.cancelling():
                raise
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), _REPLACED
            ) from None

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message


def _credentials(pem: Pem) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(pem.ca or _system_cas(), pem.key, pem.cert)


def _system_cas() -> bytes | None:
    """Return the CAs that this machine trusts, as OpenSSL finds them; gRPC would use a list of its own."""
    context = ssl.create_default_context()
    # OpenSSL reads a CA in a folder only once a certificate names it, by a hash of its name: no list has it before.
    for file in Path(ssl.get_default_verify_paths().capath or os.devnull).glob("*.[0-9]"):
        with suppress(OSError):
            context.load_verify_locations(file)
    trusted = context.get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, trusted)).encode() or None
