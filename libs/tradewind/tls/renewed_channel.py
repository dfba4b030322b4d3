"""A client channel that uses new certificates for new connections."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from tradewind.tls.files import Pem, WatchedFiles

_LINGER_S = 600.0
"""How long calls in flight over a connection with an older certificate may go on."""
_REPLACED = "the connection with the previous certificate was closed: call again"


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
        wrapper = _StreamedCall if self._kind.endswith("_stream") else _UnaryCall
        return wrapper(self._call(*args, **kwargs), self._owner)


class _Call:
    """A call that ends as UNAVAILABLE when it is cut off with an older connection.

    gRPC would make whoever waits for it believe that their own task was cancelled. Other attributes are those of the
    call.
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

    @contextmanager
    def _cut_off_as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled or self._owner.closed or task is None or task.cancelling():
                raise
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), _REPLACED
            ) from None


class _UnaryCall(_Call):
    def __await__(self) -> Generator[Any, None, Any]:
        with self._cut_off_as_unavailable():
            return (yield from self._call.__await__())


class _StreamedCall(_Call):
    async def read(self) -> Any:
        with self._cut_off_as_unavailable():
            return await self._call.read()

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
