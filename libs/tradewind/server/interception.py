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


class MethodUnknown(Exception):
    """No service on this server has the method that was called."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the middlewares, outermost first, around the handler of each call.

    A streaming response may come from an async generator or from a coroutine that calls `context.write` (as the stock
    health Watch does). The middlewares also see calls of unknown methods, which raise MethodUnknown, and requests that
    are not valid messages, which raise the decoder's error. The wrapped handler of a method is made once and kept.
    """

    def __init__(
        self, middlewares: Sequence[Middleware], until_drained: Callable[[Behavior], Behavior] | None = None
    ) -> None:
        """Take `until_drained`, which ends the streams of gRPC's own services; other streams end by themselves."""
        self._middlewares = tuple(middlewares)
        self._until_drained = until_drained
        self._handlers: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        method = handler_call_details.method
        known = self._handlers.get(method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        if handler is None:
            # Not kept: callers can make up any number of method names.
            return grpc.stream_stream_rpc_method_handler(self._wrapped(method, _unknown_method(method)))
        return self._handlers.setdefault(method, self._wrap_handler(method, handler))

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
        return build(self._wrapped(method, behavior), decode, handler.response_serializer)

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


def _unknown_method(method: str) -> Behavior:
    async def call(_request: Any, _context: Context) -> None:
        raise MethodUnknown(f"this server has no method {method}")

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
