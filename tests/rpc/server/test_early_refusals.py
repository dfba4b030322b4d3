"""A call without a valid token is refused before its message has arrived: whoever is unknown takes no memory."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tests.rpc.server.echo_service import NAME, EchoClient, EchoService
from tradewind.client.refusals import error_from
from tradewind.server.access.gate import Gate
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.faults import Unauthenticated

SECRET = "the secret of all the servers"
UNKNOWN = "tw_00_" + "x" * 43


class KnowsNobody:
    """An authority that no token comes from."""

    async def authorize(self, digest: str) -> Any:
        raise Unauthenticated("TOKEN_INVALID", "nobody has this token")

    async def watch(self, changed: Any) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


@pytest.fixture
async def client() -> AsyncIterator[EchoClient]:
    authority: Any = KnowsNobody()
    server = Server([EchoService()], gate=Gate(authority, service_tokens=[SECRET]), drain_s=0)
    await server.start()
    async with open_channel(server.address) as channel:
        yield EchoClient(channel)
    await server.stop(drain_s=0)


def begin(client: EchoClient, name: str, token: str | None) -> Any:
    """Begin a call without sending its message."""
    metadata = [("authorization", f"Bearer {token}")] if token else None
    return client.method("stream_stream", name)(metadata=metadata, timeout=20)


@pytest.mark.parametrize("name", ["UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream"])
@pytest.mark.parametrize(
    ("token", "reason"), [(None, "TOKEN_MISSING"), ("x", "TOKEN_INVALID"), (UNKNOWN, "TOKEN_INVALID")]
)
async def test_unknown_caller_is_refused_before_the_message_arrives(
    client: EchoClient, name: str, token: str | None, reason: str
) -> None:
    call = begin(client, name, token)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert error_from(refused.value, "", "").reason == reason


async def test_known_caller_is_answered_when_the_message_arrives(client: EchoClient) -> None:
    call = begin(client, "UnaryUnary", SECRET)
    await call.write(StringValue(value="hello"))
    await call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as closed:
        await call.read()
    assert error_from(closed.value, "", "").reason == "METHOD_CLOSED", f"no rule opens {NAME}"
