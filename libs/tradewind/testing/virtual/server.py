"""A server called within its own process: the services' handlers behind the interceptor that all servers share."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc as health

from tradewind.server.bootstrap import Service
from tradewind.server.errors import ErrorAnswers, ErrorTable
from tradewind.server.interception import CallInterceptor
from tradewind.testing.virtual.pipe import Pipe

Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    trailing: Metadata = ()


class LocalServer:
    """Stands in for `grpc.aio.Server` where services are bound."""

    def __init__(self) -> None:
        self._interceptor: CallInterceptor | None = None
        self._handlers: dict[str, Any] = {}

    def bind(self, services: Sequence[Service]) -> None:
        """Serve these services."""
        table = ErrorTable().merged(*(service.errors for service in services))
        for service in services:
            service.bind(self)  # type: ignore[arg-type]
        health.add_HealthServicer_to_server(_Ready(), self)  # type: ignore[arg-type]
        self._interceptor = CallInterceptor([ErrorAnswers(table)])

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Do nothing: the same methods are also registered."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a service."""
        self._handlers.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    async def serve(self, method: str, request: bytes | None, incoming: Pipe, outgoing: Pipe) -> Status:
        """Handle one call: messages come and go through the pipes; a single request comes as `request`."""

        async def find(_details: Any) -> Any:
            return self._handlers.get(method)

        assert self._interceptor is not None, "no services are bound"
        handler = await self._interceptor.intercept_service(find, _Details(method))
        decode = handler.request_deserializer or _same
        encode = handler.response_serializer or _same
        context = LocalContext(incoming, outgoing, decode, encode)
        behavior = _behavior(handler)
        try:
            given: Any = context.messages() if request is None else decode(request)
            answer = await behavior(given, context)
            if not handler.response_streaming:
                outgoing.put(encode(answer))
        except grpc.aio.AbortError:
            pass
        except Exception as error:
            context.status = Status(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
        return context.status


class LocalContext:
    """The handler's side of a call: the parts of `grpc.aio.ServicerContext` that handlers use."""

    def __init__(
        self, incoming: Pipe, outgoing: Pipe, decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._decode = decode
        self._encode = encode
        self.status = Status()

    async def read(self) -> Any:
        raw = await self._incoming.get()
        return grpc.aio.EOF if raw is None else self._decode(raw)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Do nothing: callers within the process wait for no headers."""

    async def write(self, message: Any) -> None:
        self._outgoing.put(self._encode(message))

    async def messages(self) -> AsyncIterator[Any]:
        """Yield the caller's messages."""
        while (raw := await self._incoming.get()) is not None:
            yield self._decode(raw)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> None:
        self.status = Status(code, details, trailing_metadata)
        raise grpc.aio.AbortError


class _Ready(health.HealthServicer):
    """Always ready: services in the same process as their callers are ready whenever the callers are."""

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


@dataclass(slots=True)
class _Details:
    method: str
    invocation_metadata: Metadata = ()


def _same(raw: Any) -> Any:
    return raw


def _behavior(handler: Any) -> Any:
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
