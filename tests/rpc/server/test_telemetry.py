"""Traces carried through calls, with and without a recorder."""

import socket
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.ports import free_port
from tests.rpc.server.echo_service import KINDS, NAME, EchoClient, EchoService
from tradewind.server import telemetry
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.faults import NotFound
from tradewind.server.telemetry import Tracing, context_from, current_traceparent, open_tracing, trace_ids

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def traceparent(_text: str, _context: object) -> str:
    return current_traceparent() or "none"


def test_traceparent_round_trips_through_a_context() -> None:
    assert current_traceparent() == ""
    token = otel_context.attach(context_from(PARENT))
    try:
        assert current_traceparent() == PARENT
        assert trace_ids() == {"trace_id": TRACE, "span_id": "b7ad6b7169203331"}
    finally:
        otel_context.detach(token)
    assert trace_ids() == {}


@pytest.mark.parametrize("text", ["", "rubbish", "00-0-0-00"])
def test_a_malformed_traceparent_is_no_trace(text: str) -> None:
    assert not trace.get_current_span(context_from(text)).get_span_context().is_valid


@pytest.mark.parametrize("name", KINDS)
async def test_callers_trace_is_passed_on_without_an_endpoint(
    client: EchoClient, service: EchoService, name: str
) -> None:
    service.act = traceparent
    assert await client.call(name, "x") == ["none"]
    assert await client.call(name, "x", metadata=(("traceparent", PARENT),)) == [PARENT]
    assert await client.call(name, "x") == ["none"]


@pytest.mark.parametrize("name", ["UnaryUnary", "UnaryStream"])
async def test_a_channel_sends_the_current_trace_along(client: EchoClient, service: EchoService, name: str) -> None:
    service.act = traceparent
    token = otel_context.attach(context_from(PARENT))
    try:
        assert await client.call(name, "x") == [PARENT]
    finally:
        otel_context.detach(token)


async def test_each_call_is_exported_as_a_span_below_the_callers() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing("echo", exporter)
    service = EchoService(traceparent)
    server = Server([service], tracing=tracing)
    await server.start()
    async with open_channel(server.address) as channel:
        client = EchoClient(channel)
        [inside] = await client.call("UnaryUnary", "x", metadata=(("traceparent", PARENT),))

        async def missing(_text: str, _context: object) -> str:
            raise NotFound("flow", "a")

        service.act = missing
        with pytest.raises(Exception, match="no flow"):
            await client.call("StreamStream", "x")
    await server.stop()
    good, failed = exporter.get_finished_spans()
    assert good.name == f"{NAME}/UnaryUnary"
    assert good.parent is not None
    assert inside.split("-")[1] == TRACE == f"{good.parent.trace_id:032x}"
    assert good.status.is_ok
    assert good.resource.attributes["service.name"] == "echo"
    assert (failed.name, failed.status.description, failed.parent) == (f"{NAME}/StreamStream", "NOT_FOUND", None)


async def test_services_flush_their_spans_concurrently_at_shutdown() -> None:
    barrier, flushed = threading.Barrier(3), list[str]()

    class MeetingTracing(Tracing):
        def shutdown(self, timeout_s: float = 0.0) -> None:
            barrier.wait(60)
            flushed.append(self.name)

        def __init__(self, name: str) -> None:
            super().__init__(name, None)
            self.name = name

    services = EchoService(), EchoService()
    for service, name in zip(services, "ab", strict=True):
        service.tracing = MeetingTracing(name)
    server = Server(services, tracing=MeetingTracing("calls"))
    await server.start()
    await server.stop()
    assert sorted(flushed) == ["a", "b", "calls"]


class StuckExporter(SpanExporter):
    """An exporter that blocks until it is shut down."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.batches = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.batches += 1
        self.ended.wait()
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.ended.set()


def test_shutdown_of_tracing_is_bounded_however_many_spans_wait() -> None:
    """The limit covers all batches together; the SDK itself would wait half a minute for them."""
    exporter = StuckExporter()
    tracing = Tracing("held", exporter)
    for _ in range(2000):
        tracing.begin("span").end()
    started_at = time.monotonic()
    tracing.shutdown(0.1)
    assert time.monotonic() - started_at < 15
    assert exporter.ended.is_set()


def test_shutdown_gives_up_on_a_silent_endpoint() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        tracing = open_tracing("held", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for _ in range(2000):
            tracing.begin("span").end()
        started_at = time.monotonic()
        tracing.shutdown(0.1)
        assert time.monotonic() - started_at < 15


def test_an_endpoint_that_is_away_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry._lost_spans, "_silent_until_s", 0.0)
    tracing = open_tracing("away", f"http://127.0.0.1:{free_port()}", timeout_s=1.5)
    assert tracing.provider is not None
    for _ in range(2):
        tracing.begin("span").end()
        tracing.provider.force_flush()
    tracing.shutdown()
    (message,) = [record.message for record in caplog.records if record.name.startswith("opentelemetry.exporter")]
    assert "Failed to export traces" in message


def test_tracing_without_an_endpoint_records_nothing() -> None:
    tracing = open_tracing("x", None)
    assert not tracing.recording
    with tracing.tracer.start_as_current_span("x"):
        assert current_traceparent() == ""
    tracing.shutdown()
