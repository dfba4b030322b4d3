"""Crowds of idle connections, bytes that are not HTTP/2, oversized metadata: refused while others are served."""

import asyncio
import math
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.soak.crowd import IdleConnection, frame, open_crowd
from tests.rpc.server.echo_service import EchoClient, EchoService
from tests.waiting import until
from tradewind.server import connection_limits
from tradewind.server.bootstrap import Server
from tradewind.server.channels import MAX_METADATA_BYTES, open_channel
from tradewind.server.connection_limits import max_open_connections

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
CROWD = 300
_FILES_EACH = 2
"""Both ends of each connection are in this process; `make soak` opens 10 000 between two processes."""

Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers."""
    running: list[Server] = []

    async def begin(**options: Any) -> Server:
        server = Server([EchoService()], drain_s=1, **options)
        running.append(server)
        await server.start()
        return server

    yield begin
    for server in running:
        await server.stop(drain_s=0)


async def served(server: Server) -> list[str]:
    """Call the server over a connection of its own."""
    async with open_channel(server.address) as channel:
        return await EchoClient(channel).call("UnaryUnary", "x", timeout=60)


async def test_calls_are_served_beside_many_idle_connections(start: Start) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CROWD, (soft - 200) // _FILES_EACH)
    server = await start()
    crowd = await open_crowd("127.0.0.1", server.port, count)
    try:
        assert await served(server) == ["x"]
        assert [each.farewell for each in crowd if each.closed.done()] == []
    finally:
        for each in crowd:
            each.close()
    assert await served(server) == ["x"]


async def test_calls_that_come_while_the_server_is_busy_are_all_served(start: Start) -> None:
    server = await start()
    with grpc.insecure_channel(server.address) as channel:
        await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        # Meanwhile the loop of the server, which is this one, takes none of them.
        calls = [stub.Check.future(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(4000)]
        codes = await asyncio.to_thread(lambda: {call.code() for call in calls})
    assert codes == {grpc.StatusCode.OK}


async def test_calls_beyond_those_that_may_wait_end_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "_MAX_WAITING_CALLS", 50)
    server = await start()
    with grpc.insecure_channel(server.address) as channel:
        await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        calls = [stub.Check.future(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(200)]
        # Waiting here keeps the server from taking any.
        assert calls[-1].code() is grpc.StatusCode.CANCELLED
        codes = await asyncio.to_thread(lambda: [call.code() for call in calls])
    assert 50 <= codes.count(grpc.StatusCode.OK) < 60


async def test_idle_connection_is_closed_and_client_can_reconnect(start: Start) -> None:
    server = await start(max_connection_idle_s=0.2)
    async with open_channel(server.address) as channel:
        client = EchoClient(channel)
        assert await client.call("UnaryUnary", "x", timeout=60) == ["x"]
        (idle,) = await open_crowd("127.0.0.1", server.port, 1)
        await until(lambda: idle.farewell, "the server says farewell")
        assert idle.farewell == b"connection idle"
        assert await client.call("UnaryUnary", "x", timeout=60) == ["x"]
        idle.close()


@pytest.mark.parametrize("limit", ["max_connection_age_s", "max_connection_idle_s"])
@pytest.mark.parametrize("length_s", [366 * 86_400.0, math.inf])
async def test_connection_limit_beyond_range_of_grpc_core_is_no_limit(
    start: Start, limit: str, length_s: float
) -> None:
    server = await start(**{limit: length_s})
    assert await served(server) == ["x"]


async def test_excess_connections_are_closed_and_earlier_ones_stay(start: Start) -> None:
    server = await start(max_connections=5)
    async with open_channel(server.address) as channel:
        client = EchoClient(channel)
        assert await client.call("UnaryUnary", "x", timeout=60) == ["x"]
        crowd = await open_crowd("127.0.0.1", server.port, 10)
        await until(lambda: sum(each.closed.done() for each in crowd) == 6, "those beyond five are closed")
        assert await client.call("UnaryUnary", "x", timeout=60) == ["x"]
        for each in crowd:
            each.close()

        async def has_room() -> bool:
            (late,) = await open_crowd("127.0.0.1", server.port, 1)
            accepted = not late.closed.done()
            late.close()
            return accepted

        await until(has_room, "there is room again")


@pytest.mark.parametrize(("files", "connections"), [(resource.RLIM_INFINITY, 0), (4096, 3840), (1024, 768), (256, 128)])
def test_connection_limit_leaves_open_files_for_the_store(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert max_open_connections() == connections


async def closed_after(server: Server, *parts: bytes) -> bytes:
    """Send bytes, and return what the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for part in parts:
            writer.write(part)
        received = b""
        async with asyncio.timeout(60):
            while more := await _some(reader):
                received += more
        return received
    finally:
        writer.close()


async def _some(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionResetError:
        return b""


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4


def first_stream(kind: int, flags: int, payload: bytes) -> bytes:
    """Return a frame of stream 1."""
    return frame(kind, flags, payload)[:5] + (1).to_bytes(4) + payload


HEADERS_WITHOUT_END = first_stream(HEADERS, 0, b"\x00" * 10)


@pytest.mark.parametrize(
    "parts",
    [
        [b"\x00" * 1000],
        [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x7f" * 600],
        [PREFACE, b"\xff" * 100_000],
        [PREFACE, frame(SETTINGS, 0, b"odd")],
        [PREFACE, frame(SETTINGS), HEADERS_WITHOUT_END, frame(SETTINGS)],
    ],
    ids=["zeros", "HTTP/1.1", "TLS", "a frame too large", "odd settings", "headers that are broken off"],
)
async def test_connection_without_http2_is_closed_and_others_are_served(start: Start, parts: list[bytes]) -> None:
    server = await start()
    async with open_channel(server.address) as channel:
        client = EchoClient(channel)
        assert await client.call("UnaryUnary", "x", timeout=60) == ["x"]
        await closed_after(server, *parts)
        assert await client.call("UnaryUnary", "x", timeout=60) == ["x"]
    assert await served(server) == ["x"]


@pytest.mark.parametrize("kind", ["UnaryUnary", "StreamStream"])
async def test_metadata_beyond_the_limit_is_refused_and_connection_stays_open(start: Start, kind: str) -> None:
    server = await start()
    async with open_channel(server.address) as channel:
        client = EchoClient(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call(kind, "x", timeout=60, metadata=(("x-much", "y" * (2 * MAX_METADATA_BYTES)),))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "metadata" in (refused.value.details() or "")
        assert await client.call(kind, "x", timeout=60, metadata=(("x-some", "y" * (MAX_METADATA_BYTES // 2)),)) == [
            "x"
        ]
    assert await served(server) == ["x"]


class NonReadingConnection(IdleConnection):
    """A connection that reads no byte of the answers to its calls."""

    def call(self, path: bytes) -> None:
        """Call a method with an empty message."""
        fields = {b":path": path, b":authority": b"x", b"content-type": b"application/grpc", b"te": b"trailers"}
        literals = (b"\x00" + bytes((len(name),)) + name + bytes((len(text),)) + text for name, text in fields.items())
        post, http = b"\x83", b"\x86"
        no_window, end_of_headers, end = (4).to_bytes(2) + bytes(4), 4, 1
        self._transport.write(
            frame(SETTINGS, 0, no_window)
            + first_stream(HEADERS, end_of_headers, post + http + b"".join(literals))
            + first_stream(DATA, end, bytes(5))
        )


async def test_health_watcher_that_does_not_read_delays_nobody() -> None:
    """It delays neither the news of other watchers nor the end of the server."""
    service = EchoService()
    server = Server([service], drain_s=0.5, readiness_interval_s=0.05)
    await server.start()
    loop = asyncio.get_running_loop()
    _, watcher = await loop.create_connection(NonReadingConnection, "127.0.0.1", server.port)
    await watcher.greeted
    async with open_channel(server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def status() -> int:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=60)
            return int(answer.status)

        tasks_before = asyncio.all_tasks()
        watcher.call(b"/grpc.health.v1.Health/Watch")
        await until(lambda: asyncio.all_tasks() - tasks_before, "the watch is open")
        for reason, expected in (("broken", NOT_SERVING), (None, SERVING)):
            service.reason = reason

            async def reported(expected: int = expected) -> bool:
                return await status() == expected

            await until(reported, "the change is reported")
    async with asyncio.timeout(60):
        await server.stop()
    assert service.calls[-2:] == ["drain", "stop"]
    watcher.close()


class HangingConnection(IdleConnection):
    """A connection that takes all bytes but answers only the greeting."""

    def data_received(self, data: bytes) -> None:
        if not self.greeted.done():
            super().data_received(data)


async def test_connection_that_answers_no_ping_is_closed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operating system still accepts data, as for a stopped process."""
    monkeypatch.setattr(connection_limits, "_PING_EVERY_MS", 100)
    monkeypatch.setattr(connection_limits, "_PONG_WITHIN_MS", 100)
    server = await start()
    loop = asyncio.get_running_loop()
    _, hanging = await loop.create_connection(HangingConnection, "127.0.0.1", server.port)
    await until(hanging.closed.done, "the server has closed it")


async def test_idle_test_connection_answers_pings() -> None:
    """The stand-in for clients is one that a server has no reason to disconnect."""
    connection = IdleConnection()
    sent: list[bytes] = []

    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            sent.append(bytes(data))

    connection.connection_made(Transport())
    settings, ping = frame(SETTINGS), frame(6, 0, b"12345678")
    for byte in settings + ping:
        connection.data_received(bytes((byte,)))
    assert sent[1:] == [frame(SETTINGS, 1), frame(6, 1, b"12345678")]
    assert connection.greeted.done()
