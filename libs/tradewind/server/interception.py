"""One server interceptor, which surrounds the handler of each call, whatever its kind."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import grpc

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Behavior: TypeAlias = Callable[[Any, Context], Awaitable[Any]]


class Middleware(Protocol):
    """Acts before and after every call; sees, and may replace, what the call raises."""

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Return what is called instead of the handler of `method` (`/package.Service/Method`), and calls that handler.

        It is a coroutine function made once per method: entering a context manager per call costs ten times as much.
        """
        ...


class Door(Middleware, Protocol):
    """A middleware that can refuse a call before its message has arrived."""

    async def refusal(self, method: str, metadata: Any) -> Exception | None:
        """Return why a call with this metadata is refused whatever its message says; None when that depends on more."""
        ...


class MethodUnknown(Exception):
    """No service on this server has the method that was called."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the middlewares, outermost first, around the handler of each call.

    A streaming response may come from an async generator or from a coroutine that calls `context.write` (as the stock
    health Watch does). The middlewares also see calls of unknown methods, which raise MethodUnknown, and requests that
    are not valid messages, which raise the decoder's error. The wrapped handler of a method is made once and kept.

    gRPC takes in the single message of a unary request before it calls the handler, but messages of a stream only when
    the handler reads them. So a call that the door refuses is served as a stream that nobody reads.
    """

    def __init__(
        self,
        middlewares: Sequence[Middleware],
        until_drained: Callable[[Behavior], Behavior] | None = None,
        door: Door | None = None,
    ) -> None:
        """Take `until_drained`, which ends the streams of gRPC's own services; other streams end by themselves.

        `door` is the innermost middleware.
        """
        self._middlewares = tuple(middlewares)
        self._until_drained = until_drained
        self._door = door
        self._handlers: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        method = handler_call_details.method
        known = self._handlers.get(method)
        if known is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                # Not kept: callers can make up any number of method names.
                return _unread(self._guarded(method, _raising(MethodUnknown(f"this server has no method {method}"))))
            known = self._handlers.setdefault(method, self._wrap_handler(method, handler))
        if self._door is not None and not known.request_streaming:
            refusal = await self._door.refusal(method, handler_call_details.invocation_metadata)
            if refusal is not None:
                return _unread(self._wrapped(method, _raising(refusal)))
        return known

    def _wrap_handler(self, method: str, handler: Any) -> Any:
        kind = f"{_arity(handler.request_streaming)}_{_arity(handler.response_streaming)}"
        decode = handler.request_deserializer
        if decode is not None and not handler.request_streaming:
            # A stream's messages are decoded when the handler reads them, so their errors surface there anyway.
            decode = _lenient(decode)
        behavior = _as_coroutine(getattr(handler, kind))
        if self._until_drained is not None and handler.response_streaming and method.startswith("/grpc."):
            behavior = self._until_drained(behavior)
        build = getattr(grpc, f"{kind}_rpc_method_handler")
        return build(self._guarded(method, behavior), decode, handler.response_serializer)

    def _guarded(self, method: str, behavior: Behavior) -> Behavior:
        return self._wrapped(method, self._door.around(method, behavior) if self._door else behavior)

    def _wrapped(self, method: str, behavior: Behavior) -> Behavior:
        for middleware in reversed(self._middlewares):
            behavior = middleware.around(method, behavior)
        return behavior


@dataclass(frozen=True, slots=True)
class _Undecodable:
    error: Exception


def _arity(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _lenient(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def lenient(raw: bytes) -> Any:
        try:
            return decode(raw)
        except Exception as error:
            return _Undecodable(error)

    return lenient


def _unread(behavior: Behavior) -> Any:
    """Return a handler for calls of any kind whose messages are not read."""
    return grpc.stream_stream_rpc_method_handler(behavior)


def _raising(error: Exception) -> Behavior:
    async def call(_request: Any, _context: Context) -> None:
        raise error.with_traceback(None)

    return call


def _as_coroutine(handler: Callable[[Any, Context], Any]) -> Behavior:
    """Make a uniform coroutine of a handler: it returns a unary response, or writes the messages of a stream."""

    async def call(request: Any, context: Context) -> Any:
        if type(request) is _Undecodable:
            raise request.error
        result = handler(request, context)
        if isinstance(result, AsyncGenerator):
            async with aclosing(result):
                async for message in result:
                    await context.write(message)
            return None
        return await result

    return call
