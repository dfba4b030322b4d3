"""A channel to a server in the same process, usable as a `grpc.aio.Channel`: no socket, no thread."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from contextvars import Context
from typing import Any

import grpc

from tradewind.testing.virtual.pipe import Gate, Pipe
from tradewind.testing.virtual.server import LocalServer, Metadata, Status

Tap = Callable[[str, bool, bytes], None]
"""Gets each message: the method, whether it comes from the server, its bytes."""


class LocalChannel:
    """Calls `server`. Messages are copied as bytes, as between processes; a shut gate holds them back."""

    def __init__(self, server: LocalServer, context: Context, tap: Tap | None = None) -> None:
        self.context = context
        self._server = server
        self._tap = tap
        self._calls: dict[LocalCall, None] = {}
        self.gate = Gate()

    def unary_unary(self, method: str, *coders: Any, **named: Any) -> "_Method":
        return _Method(self, method, _coders(*coders, **named), requests=False)

    def unary_stream(self, method: str, *coders: Any, **named: Any) -> "_Method":
        return _Method(self, method, _coders(*coders, **named), requests=False)

    def stream_unary(self, method: str, *coders: Any, **named: Any) -> "_Method":
        return _Method(self, method, _coders(*coders, **named), requests=True)

    def stream_stream(self, method: str, *coders: Any, **named: Any) -> "_Method":
        return _Method(self, method, _coders(*coders, **named), requests=True)

    async def close(self, grace: float | None = None) -> None:
        """Cancel the calls in flight."""
        for call in list(self._calls):
            call.cancel()

    def break_off(self, methods: str = "") -> None:
        """End the calls in flight, of methods that begin with `methods`, as a lost connection does."""
        for call in list(self._calls):
            if call.method.startswith(methods):
                call.lose()

    async def __aenter__(self) -> "LocalChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def channel_ready(self) -> None:
        """Return at once: the channel is always ready."""

    def begin(self, call: "LocalCall") -> None:
        """Keep a call that has begun until it ends."""
        self._calls[call] = None

    def end(self, call: "LocalCall") -> None:
        """Forget a call that has ended."""
        self._calls.pop(call, None)

    async def serve(self, method: str, request: bytes | None, up: Pipe, down: Pipe) -> Status:
        """Have the server handle a call."""
        if self.gate.is_shut:
            await self.gate.wait_until_open()
        return await self._server.serve(method, request, up, down)

    def call_tap(self, method: str, from_server: bool, message: bytes) -> None:
        """Show a message to the tap, if there is one."""
        if self._tap is not None:
            self._tap(method, from_server, message)


Coders = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def _coders(
    request_serializer: Any = None, response_deserializer: Any = None, _registered_method: bool = False
) -> Coders:
    return request_serializer or _same, response_deserializer or _same


def _same(raw: Any) -> Any:
    return raw


class _Method:
    """One method of a channel."""

    def __init__(self, channel: LocalChannel, method: str, coders: Coders, *, requests: bool) -> None:
        self._channel = channel
        self._name = method
        self._coders = coders
        self._requests = requests

    def __call__(self, request: Any = None, *, timeout: float | None = None, **_options: Any) -> "LocalCall":
        return LocalCall(self._channel, self._name, self._coders, self._requests, request, timeout)


class LocalCall:
    """The caller's side of one call of any kind."""

    def __init__(
        self,
        channel: LocalChannel,
        method: str,
        coders: Coders,
        streams_requests: bool,
        request: Any,
        timeout: float | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._channel = channel
        self.method = method
        self._encode, self._decode = coders
        self._up, self._down = Pipe(channel.gate), Pipe(channel.gate)
        self._ended: asyncio.Future[Status] = loop.create_future()
        self._cancelled = False
        self._feeding: asyncio.Task[None] | None = None
        raw = None
        if not streams_requests:
            raw = self._encode(request)
            channel.call_tap(method, False, raw)
        elif request is not None:
            self._feeding = loop.create_task(self._feed(request))
        self._task = loop.create_task(channel.serve(method, raw, self._up, self._down), context=channel.context.copy())
        channel.begin(self)
        self._task.add_done_callback(self._on_served)
        self._timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            # In the engine's context: the loop need not stop at the time limit of a call.
            self._timer = channel.context.copy().run(loop.call_later, timeout, self._on_timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            message = await self.read()
        except asyncio.CancelledError:
            # As with a real channel, a caller that stops waiting cancels the call.
            self.cancel()
            raise
        await self._wait_until_ended()
        return message

    async def read(self) -> Any:
        """Return the next message, EOF after the last. Raises AioRpcError when the call has failed."""
        raw = await self._down.get()
        if raw is None:
            await self._wait_until_ended()
            return grpc.aio.EOF
        self._channel.call_tap(self.method, True, raw)
        return self._decode(raw)

    async def write(self, message: Any) -> None:
        """Send a message. Raises InvalidStateError once the call has ended."""
        if self._ended.done():
            raise asyncio.InvalidStateError("the call has ended")
        raw = self._encode(message)
        self._channel.call_tap(self.method, False, raw)
        self._up.put(raw)

    async def done_writing(self) -> None:
        """Say that no more requests come."""
        self._up.close()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._each()

    async def _each(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def cancel(self) -> bool:
        """End the call; return False when it has ended already."""
        if self._ended.done():
            return False
        self._cancelled = True
        self._end(Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!"))
        return True

    def lose(self) -> None:
        """End the call for both sides, as a lost connection does."""
        self._end(Status(grpc.StatusCode.UNAVAILABLE, "the connection was lost"))

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._ended.done()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._ended.add_done_callback(lambda _: callback(self))

    async def code(self) -> grpc.StatusCode:
        return (await asyncio.shield(self._ended)).code

    async def details(self) -> str:
        return (await asyncio.shield(self._ended)).details

    async def trailing_metadata(self) -> Metadata:
        return (await asyncio.shield(self._ended)).trailing

    async def _feed(self, requests: AsyncIterable[Any]) -> None:
        async for request in requests:
            await self.write(request)
        self._up.close()

    async def _wait_until_ended(self) -> None:
        """Raise the error that the call ended with, unless it ended with OK."""
        status = await asyncio.shield(self._ended)
        if self._cancelled:
            raise asyncio.CancelledError
        if status.code is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                status.code, grpc.aio.Metadata(), grpc.aio.Metadata(*status.trailing), details=status.details
            )

    def _on_served(self, task: asyncio.Task[Status]) -> None:
        if task.cancelled():
            self._end(Status(grpc.StatusCode.CANCELLED, "the server has ended the call"))
        else:
            self._end(task.result())

    def _on_timeout(self) -> None:
        # The same leap may have made the server's timers due as well. Their consequences come first.
        status = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        self._timer = asyncio.get_running_loop().call_later(0.001, self._end, status)

    def _end(self, status: Status) -> None:
        if self._ended.done():
            return
        self._ended.set_result(status)
        if self._timer is not None:
            self._timer.cancel()
        if self._feeding is not None:
            self._feeding.cancel()
        self._task.cancel()
        self._up.close()
        self._down.close()
        self._channel.end(self)
