"""Calls to servers: deadlines, repetition while one is away, and errors as exceptions of the client."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from tradewind.client.addresses import Addresses
from tradewind.client.errors import TradewindError, Unavailable
from tradewind.client.refusals import error_from
from tradewind.client.traces import traceparent
from tradewind.client.wire import span
from tradewind.codec import Codec
from tradewind.codec.channel import encoded
from tradewind.server.backoff import Backoff
from tradewind.tls.channels import Security
from tradewind.tls.channels import open_channel as open_secured

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")


class _Page(Protocol):
    """A part of a list."""

    next_page_token: str


Page = TypeVar("Page", bound=_Page)

_OPTIONS: list[tuple[str, int | str]] = [
    # Servers keep their messages below 4 MiB; this leaves room for one that does not.
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # Error details travel in the metadata.
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.absolute_max_metadata_size", 64 * 1024),
    ("grpc.min_reconnect_backoff_ms", 1_000),
]

_OTHER_LOOP = (
    "this client and its connections belong to another event loop: make a client in each loop, or use SyncClient, "
    "which any thread may use"
)
CLOSED = "this client is closed"
_BACKOFF_S = (0.1, 2.0)
_MAX_REMEMBERED_S = 86_400.0
"""The longest time that a server remembers a request."""
_EXTRA_REMEMBERED_S = 300.0
"""Extra seconds for which the answer to a request is remembered, beyond its repetitions: clients may be held up."""
_UPLOAD_PAUSE_S = 0.1


def open_channel(address: str, security: Security = None) -> grpc.aio.Channel:
    """Return a channel to `address`, in plain text without `security`; it connects on the first call.

    Raises ValueError for an invalid address.
    """
    return open_secured(address, security, _OPTIONS)


def new_request_id() -> str:
    """Return a new request id: a request with one can be sent again without taking effect twice."""
    return os.urandom(16).hex()


class Calls:
    """Makes calls, with the client's deadline and patience, in seconds, and its codec."""

    def __init__(self, addresses: Addresses, timeout: float, patience: float, codec: Codec | None = None) -> None:
        self.addresses = addresses
        self.timeout = timeout
        self.patience = patience
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that the connections belong to; None before the first call."""
        self.closed = False
        self._codec = codec

    def request_id_fields(self, request_id: str | None, extra: float = 0.0) -> dict[str, Any]:
        """Return the fields that identify a run when its request is repeated.

        The server remembers an id made here for as long as this client may repeat the call, which waits for `extra`
        seconds; it remembers an id of the user's for its own time.
        """
        if request_id:
            return {"request_id": request_id}
        lifetime = min(2 * (self.timeout + extra) + self.patience + _EXTRA_REMEMBERED_S, _MAX_REMEMBERED_S)
        return {"request_id": new_request_id(), "remember_for": span(lifetime)}

    def encode(self, request: Request) -> Request:
        """Return the request as it is sent, with its payloads encoded by the codec. Raises CodecError."""
        return request if self._codec is None else encoded(self._codec, request)

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        extra: float = 0.0,
        patience: float = 0.0,
        on_repeat: Callable[[], None] | None = None,
    ) -> Response:
        """Return the answer to `request`, which is repeated while the server is away: that must be safe.

        `extra` is how many seconds the server was asked to wait before it answers, `patience` the least patience of
        this call; `on_repeat` is called before each repetition. Raises TradewindError, CodecError.
        """
        request = self.encode(request)

        async def once() -> Response:
            with self._translated_errors(request):
                return await method(request, timeout=self.timeout + extra, metadata=_trace())

        return await self.repeated(once, on_repeat, patience)

    async def call_or_done(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *done: type[TradewindError],
        extra: float = 0.0,
    ) -> Response | None:
        """Return the answer to a request that takes effect only once, as `call` does.

        Returns None when a repetition is refused with one of the errors `done`: an earlier attempt did the work, but
        its answer was lost.
        """
        repetition = asyncio.Event()
        try:
            return await self.call(method, request, extra=extra, on_repeat=repetition.set)
        except done:
            if repetition.is_set():
                return None
            raise

    async def pages(
        self, method: grpc.aio.UnaryUnaryMultiCallable[Request, Page], request: Request, patience: float = 0.0
    ) -> AsyncGenerator[Page, None]:
        """Yield the answers to `request`, page after page, each as `call` returns it. Raises TradewindError."""
        while True:
            page = await self.call(method, request, patience=patience)
            yield page
            if not page.next_page_token:
                return
            request.MergeFrom(type(request)(page_token=page.next_page_token))

    async def once(self, method: grpc.aio.UnaryUnaryMultiCallable[Request, Response], request: Request) -> Response:
        """Return the answer to `request`, which is sent only once because repeating it is not safe.

        Raises TradewindError.
        """
        self.own_loop()
        with self._translated_errors(request):
            return await method(request, timeout=self.timeout, metadata=_trace())

    async def repeated(
        self,
        once: Callable[[], Awaitable[Response]],
        on_repeat: Callable[[], None] | None = None,
        patience: float = 0.0,
    ) -> Response:
        """Return what `once` returns, calling it again while it raises Unavailable and patience lasts.

        `patience` is the least patience.
        """
        deadline = 0.0
        backoff = Backoff(*_BACKOFF_S)
        while True:
            loop = self.own_loop()
            try:
                return await once()
            except Unavailable as error:
                pause = max(error.retry_after, backoff.next_s())
                # From the first failure on: a call that was asked to wait may have taken longer than the patience.
                deadline = deadline or loop.time() + max(patience, self.patience)
                if loop.time() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
            if on_repeat is not None:
                on_repeat()

    @contextmanager
    def _translated_errors(self, request: Message) -> Iterator[None]:
        """Turn what gRPC raises into errors of the client, which name the server and the method."""
        try:
            with self.until_closed():
                yield
        except grpc.aio.AioRpcError as error:
            # Each method has a request of its own, in the package of its service.
            kind = request.DESCRIPTOR
            address: str = getattr(self.addresses, kind.file.package.split(".")[2])
            raise error_from(error, address, kind.name.removesuffix("Request")) from None

    @contextmanager
    def until_closed(self) -> Iterator[None]:
        """Raise RuntimeError when the client was closed: gRPC would make waiting tasks believe they were cancelled."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.closed or task is None or task.cancelling():
                raise
            raise RuntimeError(CLOSED) from None

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. Raises RuntimeError if the connections belong to another, or are closed."""
        if self.closed:
            raise RuntimeError(CLOSED)
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            if self.loop is not None:
                raise RuntimeError(_OTHER_LOOP)
            self.loop = loop
        return loop

    async def upload(
        self, method: grpc.aio.StreamUnaryMultiCallable[Request, Response], parts: Sequence[Request]
    ) -> Response:
        """Return the answer to `parts`, which are encoded; they are sent again from the first while the server is away.

        Raises TradewindError.
        """

        pause = 0.0

        async def once() -> Response:
            with self._translated_errors(parts[0]):
                return await method(_paced(parts, pause), timeout=self.timeout, metadata=_trace())

        def lengthen_pause() -> None:
            # gRPC loses a refusal that arrives while something is being written: leave time for it between the parts.
            nonlocal pause
            pause += _UPLOAD_PAUSE_S

        return await self.repeated(once, lengthen_pause)

    async def stream(
        self, method: grpc.aio.UnaryStreamMultiCallable[Request, Response], request: Request
    ) -> AsyncGenerator[Response, None]:
        """Yield what the server streams, without a deadline. Raises TradewindError, even for a broken connection."""
        self.own_loop()
        call = method(request, metadata=_trace())
        try:
            with self._translated_errors(request):
                async for response in call:
                    yield response
        finally:
            call.cancel()


async def _paced(parts: Sequence[Request], pause: float) -> AsyncGenerator[Request, None]:
    for part in parts:
        yield part
        await asyncio.sleep(pause)


def _trace() -> grpc.aio.Metadata | None:
    trace = traceparent()
    return grpc.aio.Metadata(("traceparent", trace)) if trace else None
