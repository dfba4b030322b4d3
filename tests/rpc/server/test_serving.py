"""Starting and stopping a server: health, reflection, readiness, drain in bounded time, errors at start."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import structlog
from google.protobuf.wrappers_pb2 import StringValue
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.rpc.server.echo_service import NAME, EchoClient, EchoService
from tests.waiting import until
from tradewind.server.bootstrap import Server, StartError
from tradewind.server.channels import open_channel
from tradewind.server.health import Health
from tradewind.server.redis.client import UnsafeStore

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(server: Server, name: str) -> int:
    async with open_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        status: int = (await stub.Check(request, timeout=5)).status
        return status


@pytest.mark.parametrize("name", ["", "liveness", "readiness", NAME])
async def test_health_under_every_name(server: Server, name: str) -> None:
    assert await health(server, name) == SERVING


async def test_health_lists_every_name(server: Server) -> None:
    async with open_channel(server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        messages: Any = health_pb2
        listed = (await stub.List(messages.HealthListRequest(), timeout=5)).statuses
    assert {name: each.status for name, each in listed.items()} == dict.fromkeys(("", "liveness", "readiness", NAME), 1)


async def test_a_name_nobody_has_is_not_found(server: Server) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(server, "nothing")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_what_is_not_ready_shows_in_readiness_and_not_in_liveness() -> None:
    fine, broken = EchoService(), EchoService()
    broken.names = ("tradewind.test.Broken",)
    broken.reason = "the store does not answer"
    server = Server([fine])
    server._health = Health([(each.names, each.not_ready) for each in (fine, broken)], interval_s=0.01)
    with capture_logs() as logs:
        await server.start()
    try:
        seen = {name: await health(server, name) for name in ("", "liveness", "readiness", *fine.names, *broken.names)}
        assert seen == {
            "": NOT_SERVING,
            "liveness": SERVING,
            "readiness": NOT_SERVING,
            NAME: SERVING,
            "tradewind.test.Broken": NOT_SERVING,
        }
        assert {"event": "not_ready", "reasons": [broken.reason], "log_level": "warning"} in logs
        broken.reason = None

        async def ready() -> bool:
            return await health(server, "readiness") == SERVING

        await until(ready, "readiness follows the service")
    finally:
        await server.stop(drain_s=0)


async def test_a_readiness_check_that_fails_or_hangs_counts_as_not_ready() -> None:
    async def hang() -> str | None:
        await asyncio.Event().wait()
        return None

    async def fail() -> str | None:
        raise RuntimeError("on purpose")

    for check, reason in ((hang, "took longer than 0.05 s"), (fail, "on purpose")):
        health = Health([(["x"], check)], timeout_s=0.05)
        with capture_logs() as logs:
            await health.start()
        await health.drain()
        assert reason in logs[0]["reasons"][0]


async def test_reflection_and_channelz_name_the_services(server: Server) -> None:
    def names() -> set[str]:
        with grpc.insecure_channel(server.address) as channel:
            return set(ProtoReflectionDescriptorDatabase(channel).get_services())

    assert await asyncio.to_thread(names) == {
        NAME,
        "grpc.channelz.v1.Channelz",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    async with open_channel(server.address) as channel:
        stub: Any = channelz_pb2_grpc.ChannelzStub(channel)  # type: ignore[arg-type]
        assert (await stub.GetServers(channelz_pb2.GetServersRequest(), timeout=5)).server


async def test_no_method_costs_the_calls_of_others_a_task(server: Server) -> None:
    assert await health(server, "liveness") == SERVING
    # Each such task waits for the next call of one method, and grpcio goes through all of them after every call.
    assert [task for task in asyncio.all_tasks() if "_request_registered_call" in repr(task)] == []


async def test_services_start_in_order_and_stop_in_reverse() -> None:
    order: list[str] = []

    class Noted(EchoService):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.names = (name,)

        async def start(self) -> None:
            order.append(f"start {self.names[0]}")

        async def stop(self) -> None:
            order.append(f"stop {self.names[0]}")

    server = Server([Noted("a"), Noted("b")])
    await server.start()
    await server.stop()
    await server.stop()
    assert order == ["start a", "start b", "stop b", "stop a"]


async def test_a_port_that_is_taken_is_one_sentence_and_leaves_nothing_open(server: Server) -> None:
    second = EchoService()
    with pytest.raises(StartError, match=rf"cannot listen on {server.address}: it is in use"):
        await Server([second], port=server.port).start()
    assert second.calls == ["drain", "stop"]


@pytest.mark.parametrize("error", [ConnectionError("the store is away"), UnsafeStore("the store is unsafe")])
async def test_a_service_that_cannot_start_stops_what_was_started(error: Exception) -> None:
    class Failing(EchoService):
        async def start(self) -> None:
            raise error

    first = EchoService()
    server = Server([first, Failing()], port=free_port())
    with pytest.raises(StartError, match=str(error)):
        await server.start()
    assert first.calls == ["start", "drain", "stop"]
    next_one = Server([first], port=server.port)
    await next_one.start()
    await next_one.stop(drain_s=0)


async def test_a_drain_ends_open_streams_and_lets_calls_in_flight_finish() -> None:
    released = asyncio.Event()
    service = EchoService()

    async def slow(text: str, _context: object) -> str:
        await released.wait()
        return text

    service.act = slow
    server = Server([service], drain_s=20)
    await server.start()
    async with open_channel(server.address) as channel:
        client = EchoClient(channel)
        in_flight = asyncio.ensure_future(client.call("UnaryUnary", "finished"))
        stream = client.method("unary_stream", "Wait")(StringValue(value="open"))
        assert (await stream.read()).value == "open"
        health_stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = health_stub.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        assert (await watch.read()).status == SERVING
        begun = time.monotonic()
        stopping = asyncio.ensure_future(server.stop())
        assert (await watch.read()).status == NOT_SERVING
        assert await stream.read() is grpc.aio.EOF
        released.set()
        assert await in_flight == ["finished"]
        assert await watch.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
        assert time.monotonic() - begun < 5
    assert service.calls == ["start", "drain", "stop"]


async def test_a_stream_that_will_not_end_is_cut_off_when_the_drain_is_over() -> None:
    service = EchoService(stubborn=True)
    server = Server([service], drain_s=0.3)
    await server.start()
    async with open_channel(server.address) as channel:
        stream = EchoClient(channel).method("unary_stream", "Wait")(StringValue(value="open"))
        assert (await stream.read()).value == "open"
        begun = time.monotonic()
        await server.stop()
        assert time.monotonic() - begun < 3
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await stream.read()
    assert service.calls[-1] == "stop"


async def test_a_service_that_hangs_in_its_drain_does_not_hold_the_others() -> None:
    class Hanging(EchoService):
        async def drain(self) -> None:
            await asyncio.Event().wait()

    other = EchoService()
    server = Server([Hanging(), other], drain_s=0.2)
    await server.start()
    with capture_logs() as logs:
        await server.stop()
    assert other.calls == ["start", "drain", "stop"]
    assert any(log["event"] == "too_slow" for log in logs)


async def test_requests_above_the_limit_are_refused_and_those_at_it_pass() -> None:
    server = Server([EchoService()], max_message_bytes=1024 * 1024)
    await server.start()
    try:
        async with open_channel(server.address) as channel:
            client = EchoClient(channel)
            assert await client.call("UnaryUnary", "x" * 1024 * 1024)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.call("UnaryUnary", "x" * 2 * 1024 * 1024)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    finally:
        await server.stop(drain_s=0)


@pytest.fixture
def every_level() -> Iterator[None]:
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("debug"))
    yield
    structlog.configure(**config)


@pytest.mark.usefixtures("every_level")
async def test_calls_are_logged_failures_louder(client: EchoClient, service: EchoService) -> None:
    async def fail(_text: str, _context: object) -> str:
        raise ConnectionError

    with capture_logs() as logs:
        await client.call("UnaryUnary", "x")
        service.act = fail
        with pytest.raises(grpc.aio.AioRpcError):
            await client.call("StreamStream", "x")
        await until(lambda: [log["event"] for log in logs].count("call") == 2, "both calls are logged")
    calls = [log for log in logs if log["event"] == "call"]
    assert [(call["log_level"], call["code"], call["method"]) for call in calls] == [
        ("debug", "OK", f"/{NAME}/UnaryUnary"),
        ("warning", "INTERNAL", f"/{NAME}/StreamStream"),
    ]
    assert all(call["ms"] >= 0 and call["peer"] for call in calls)
