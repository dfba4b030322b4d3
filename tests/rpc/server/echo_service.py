"""A service for tests with a method of each kind; what it does depends on the text it is sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue

from tradewind.server.errors import ErrorRule, ErrorTable
from tradewind.server.interception import Context
from tradewind.server.streams import run_both
from tradewind.server.telemetry import Tracing

NAME = "tradewind.test.Echo"

Act = Callable[[str, Context], Awaitable[str]]


class OnPurpose(Exception):
    """A domain error of this service."""


class EchoService:
    """Answers each text with the result of `act`. Its open streams end when it is drained, unless `stubborn`."""

    names = (NAME,)
    tracing: Tracing | None = None
    errors = ErrorTable({OnPurpose: ErrorRule(grpc.StatusCode.ABORTED, "VERSION_CONFLICT")})

    def __init__(self, act: Act | None = None, stubborn: bool = False) -> None:
        self.act = act or self.echo
        self.calls: list[str] = []
        self.reason: str | None = None
        self._stubborn = stubborn
        self._drained = asyncio.Event()

    async def echo(self, text: str, _context: Context) -> str:
        return text

    def bind(self, server: grpc.aio.Server) -> None:
        codecs: Any = {
            "request_deserializer": StringValue.FromString,
            "response_serializer": StringValue.SerializeToString,
        }
        handlers = {
            "UnaryUnary": grpc.unary_unary_rpc_method_handler(self.unary_unary, **codecs),
            "UnaryStream": grpc.unary_stream_rpc_method_handler(self.unary_stream, **codecs),
            "UnaryWriter": grpc.unary_stream_rpc_method_handler(self.unary_writer, **codecs),
            "StreamUnary": grpc.stream_unary_rpc_method_handler(self.stream_unary, **codecs),
            "StreamStream": grpc.stream_stream_rpc_method_handler(self.stream_stream, **codecs),
            "BothWays": grpc.stream_stream_rpc_method_handler(self.both_ways, **codecs),
            "Wait": grpc.unary_stream_rpc_method_handler(self.wait, **codecs),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(NAME, handlers)])

    async def start(self) -> None:
        self.calls.append("start")

    async def drain(self) -> None:
        self.calls.append("drain")
        self._drained.set()

    async def stop(self) -> None:
        self.calls.append("stop")

    async def not_ready(self) -> str | None:
        return self.reason

    async def unary_unary(self, request: StringValue, context: Context) -> StringValue:
        return StringValue(value=await self.act(request.value, context))

    async def unary_stream(self, request: StringValue, context: Context) -> AsyncIterator[StringValue]:
        for text in request.value.split():
            yield StringValue(value=await self.act(text, context))

    async def unary_writer(self, request: StringValue, context: Context) -> None:
        for text in request.value.split():
            await context.write(StringValue(value=await self.act(text, context)))

    async def stream_unary(self, requests: AsyncIterator[StringValue], context: Context) -> StringValue:
        return StringValue(value=" ".join([await self.act(each.value, context) async for each in requests]))

    async def stream_stream(self, requests: AsyncIterator[StringValue], context: Context) -> AsyncIterator[StringValue]:
        async for each in requests:
            yield StringValue(value=await self.act(each.value, context))

    async def both_ways(self, _requests: AsyncIterator[StringValue], context: Context) -> None:
        """Fail as a reader of rubbish does, while the first message is being written."""
        writes = asyncio.Event()

        async def read() -> None:
            await writes.wait()
            raise OnPurpose("rubbish")

        async def write() -> None:
            writes.set()
            await context.write(StringValue(value="welcome"))
            await asyncio.Event().wait()

        await run_both(context, read(), write())

    async def wait(self, request: StringValue, _context: Context) -> AsyncIterator[StringValue]:
        yield request
        await (asyncio.Event() if self._stubborn else self._drained).wait()


class EchoClient:
    """Calls each method of the service and returns all texts of the answer."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def method(self, kind: str, name: str) -> Any:
        return getattr(self.channel, kind)(
            f"/{NAME}/{name}",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=StringValue.FromString,
        )

    async def call(self, name: str, text: str, **options: Any) -> list[str]:
        options = {"timeout": 10, **options}
        request = StringValue(value=text)
        if name == "UnaryUnary":
            return [(await self.method("unary_unary", name)(request, **options)).value]
        if name == "StreamUnary":
            return [(await self.method("stream_unary", name)(_each(text), **options)).value]
        if name == "StreamStream":
            call = self.method("stream_stream", name)(_each(text), **options)
        else:
            call = self.method("unary_stream", name)(request, **options)
        return [each.value async for each in call]


KINDS = ["UnaryUnary", "UnaryStream", "UnaryWriter", "StreamUnary", "StreamStream"]


async def _each(text: str) -> AsyncIterator[StringValue]:
    for word in text.split():
        yield StringValue(value=word)
