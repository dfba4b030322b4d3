"""Nodes run in spans that continue the cycle's trace, where telemetry is configured."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.unit.worker.attempts import Bench
from tradewind.worker import node
from tradewind.worker.tracing import NodeTracer

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> NodeTracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return NodeTracer(provider)


def current_trace() -> str:
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


@node("async.trace")
async def async_trace() -> str:
    return current_trace()


@node("thread.trace")
def thread_trace() -> str:
    return current_trace()


@node("failing")
async def failing(key: str) -> None:
    raise ValueError(f"no {key}")


@node("stubborn")
async def stubborn() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


@pytest.mark.parametrize("traced", [async_trace, thread_trace], ids=lambda traced: traced.type)
async def test_node_runs_in_span_of_its_cycle(traced: Any, tracer: NodeTracer, exporter: Any) -> None:
    async with Bench([traced], tracer=tracer) as bench:
        run = await bench.run(bench.assignment(traced.type, traceparent=TRACEPARENT, flow_id="momentum", cycle=7))
        await bench.executor.wait_idle()

    (span,) = exporter.get_finished_spans()
    assert run.output == TRACE_ID
    assert (span.name, span.kind) == (f"node {traced.type}", trace.SpanKind.CONSUMER)
    assert trace.format_span_id(span.parent.span_id) == "b7ad6b7169203331"
    assert (span.attributes["tradewind.flow_id"], span.attributes["tradewind.cycle"]) == ("momentum", 7)
    assert span.status.is_unset


async def test_failure_marks_span_without_secrets(tracer: NodeTracer, exporter: Any) -> None:
    async def vault(name: str) -> str:
        return "s3cr"

    async with Bench([failing], tracer=tracer, secrets=vault) as bench:
        config = '{"key": {"$secret": "broker"}}'
        await bench.run(bench.assignment("failing", traceparent=TRACEPARENT, config_json=config))

    (span,) = exporter.get_finished_spans()
    assert span.attributes["error.type"] == "ValueError"
    assert span.status.description == "no [secret broker]"
    assert "s3cr" not in span.to_json()


async def test_node_that_outlives_its_stop_has_the_failure_that_was_reported(tracer: NodeTracer, exporter: Any) -> None:
    async with Bench([stubborn], tracer=tracer) as bench:
        bench.executor.start(bench.assignment("stubborn", traceparent=TRACEPARENT))
        await asyncio.sleep(0)
        bench.stop(grace=0.01)
        assert (await bench.end("t1")).terminated

    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.attributes["error.type"]) == (trace.StatusCode.ERROR, "terminated")


async def test_no_span_without_a_trace_context(tracer: NodeTracer, exporter: Any) -> None:
    async with Bench([async_trace], tracer=tracer) as bench:
        await bench.run(bench.assignment("async.trace"))

    assert exporter.get_finished_spans() == ()


async def test_node_stopped_before_its_first_line_has_no_span(tracer: NodeTracer, exporter: Any) -> None:
    async with Bench([async_trace], tracer=tracer) as bench:
        bench.executor.start(bench.assignment("async.trace", traceparent=TRACEPARENT))
        bench.stop()
        assert (await bench.end("t1")).terminated

    assert exporter.get_finished_spans() == ()


def test_nothing_is_traced_without_configuration() -> None:
    assert NodeTracer.configured() is None


def test_exporter_of_spans_has_time_limit_of_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK passes no time limit to the exporter, which would try for 10 s by itself."""
    made: list[dict[str, Any]] = []
    providers: list[TracerProvider] = []

    class Exporter(InMemorySpanExporter):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            made.append(options)

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.grpc.trace_exporter.OTLPSpanExporter", Exporter)
    monkeypatch.setattr(trace, "set_tracer_provider", providers.append)
    monkeypatch.setattr("atexit.register", lambda _shutdown: None)
    monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", "http://localhost:4317")
    tracer = NodeTracer.configured()

    assert tracer is not None
    tracer.flush()
    providers[0].shutdown()
    assert made == [{"endpoint": "http://localhost:4317", "timeout": 3.0}]
