"""Starting and stopping a server: health, reflection, readiness, drain in bounded time, errors at start."""

import asyncio
import time
from typing import Any

import grpc
import pytest
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
from tradewind.server.faults import NotFound
from tradewind.server.health import Health
from tradewind.server.redis.checks import UnsafeStore

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(server: Server, name: str) -> int:
    async with open_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        status: int = (await stub.Check(request, timeout=5)).status
        return status


@pytest.mark.parametrize("name", ["", "liveness", "readiness", NAME])
async def test_health_is_served_under_every_name(server: Server, name: str) -> None:
    assert await health(server, name) == SERVING


async def test_health_lists_every_name(server: Server) -> None:
    async with open_channel(server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        messages: Any = health_pb2
        listed = (await stub.List(messages.HealthListRequest(), timeout=5)).statuses
    assert {name: each.status for name, each in listed.items()} == dict.fromkeys(("", "liveness", "readiness", NAME), 1)


async def test_health_of_unknown_service_is_not_found(server: Server) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(server, "nothing")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_unready_service_affects_readiness_but_not_liveness() -> None:
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


async def test_failing_or_hanging_readiness_check_means_not_ready() -> None:
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


async def test_methods_without_calls_occupy_no_tasks(server: Server) -> None:
    assert await health(server, "liveness") == SERVING
    # Each such task waits for the next call of one method, and grpcio goes through all of them after every call.
    assert [task for task in asyncio.all_tasks() if "_request_registered_call" in repr(task)] == []


async def test_services_start_in_order_and_stop_in_reverse() -> None:
    order: list[str] = []

    class RecordingService(EchoService):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.names = (name,)

        async def start(self) -> None:
            order.append(f"start {self.names[0]}")

        async def stop(self) -> None:
            order.append(f"stop {self.names[0]}")

    server = Server([RecordingService("a"), RecordingService("b")])
    await server.start()
    await server.stop()
    await server.stop()
    assert order == ["start a", "start b", "stop b", "stop a"]


async def test_port_in_use_is_reported_and_the_service_stopped(server: Server) -> None:
    second = EchoService()
    with pytest.raises(StartError, match=rf"port {server.port} is in use by process .*TRADEWIND_PORT"):
        await Server([second], port=server.port).start()
    assert second.calls == ["drain", "stop"]


@pytest.mark.parametrize("error", [ConnectionError("the store is away"), UnsafeStore("the store is unsafe")])
async def test_failing_start_stops_services_that_have_started(error: Exception) -> None:
    class FailingStart(EchoService):
        async def start(self) -> None:
            raise error

    first = EchoService()
    server = Server([first, FailingStart()], port=free_port())
    with pytest.raises(StartError, match=str(error)):
        await server.start()
    assert first.calls == ["start", "drain", "stop"]
    next_server = Server([first], port=server.port)
    await next_server.start()
    await next_server.stop(drain_s=0)


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
        started_at = time.monotonic()
        stopping = asyncio.ensure_future(server.stop())
        assert (await watch.read()).status == NOT_SERVING
        assert await stream.read() is grpc.aio.EOF
        released.set()
        assert await in_flight == ["finished"]
        assert await watch.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
        assert time.monotonic() - started_at < 5
    assert service.calls == ["start", "drain", "stop"]


async def test_stream_that_does_not_end_is_cut_off_after_the_drain() -> None:
    service = EchoService(stubborn=True)
    server = Server([service], drain_s=0.3)
    await server.start()
    async with open_channel(server.address) as channel:
        stream = EchoClient(channel).method("unary_stream", "Wait")(StringValue(value="open"))
        assert (await stream.read()).value == "open"
        started_at = time.monotonic()
        await server.stop()
        assert time.monotonic() - started_at < 3
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await stream.read()
    assert service.calls[-1] == "stop"


async def test_service_that_hangs_in_drain_does_not_delay_others() -> None:
    class HangingDrain(EchoService):
        async def drain(self) -> None:
            await asyncio.Event().wait()

    other = EchoService()
    server = Server([HangingDrain(), other], drain_s=0.2)
    await server.start()
    with capture_logs() as logs:
        await server.stop()
    assert other.calls == ["start", "drain", "stop"]
    assert any(log["event"] == "stop_timed_out" for log in logs)


async def test_requests_beyond_max_message_bytes_are_refused() -> None:
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


@pytest.mark.usefixtures("debug_logging")
async def test_calls_are_logged_by_who_has_to_see_to_them(client: EchoClient, service: EchoService) -> None:
    errors = iter((ConnectionError(), NotFound("flow", "x")))

    async def fail(_text: str, _context: object) -> str:
        raise next(errors)

    with capture_logs() as logs:
        await client.call("UnaryUnary", "x")
        service.act = fail
        for method in ("StreamStream", "UnaryUnary"):
            with pytest.raises(grpc.aio.AioRpcError):
                await client.call(method, "x")
        await until(lambda: [log["event"] for log in logs].count("call") == 3, "all calls are logged")
    calls = [log for log in logs if log["event"] == "call"]
    assert [(call["log_level"], call["code"], call["method"]) for call in calls] == [
        ("debug", "OK", f"/{NAME}/UnaryUnary"),
        ("warning", "INTERNAL", f"/{NAME}/StreamStream"),
        ("info", "NOT_FOUND", f"/{NAME}/UnaryUnary"),
    ]
    assert all(call["ms"] >= 0 and call["peer"] for call in calls)
