"""Traces: setup, spans, and `traceparent` carried through calls. Costs next to nothing if no endpoint is set."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tradewind.server.interception import Behavior, Context

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

TRACEPARENT = "traceparent"

FLUSH_S = 5.0
"""How long the end of tracing may take to send the spans held back, all batches together."""

Attributes = Mapping[str, str | int | float | bool]

_TOLD_EVERY_S = 600.0

_SAMPLED = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]")

_propagator = TraceContextTextMapPropagator()


class LostSpans(logging.Filter):
    """Lets one error of the exporter pass in ten minutes: it logs each try while the endpoint is away."""

    def __init__(self) -> None:
        super().__init__()
        self._silent_until_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is logged."""
        now_s = time.monotonic()
        if record.levelno < logging.ERROR or now_s < self._silent_until_s:
            return False
        self._silent_until_s = now_s + _TOLD_EVERY_S
        return True


_lost_spans = LostSpans()


class Tracing:
    """Where this process's spans go; without an exporter nothing is recorded, only passed on."""

    def __init__(self, service: str, exporter: SpanExporter | None, sampling: float = 1.0) -> None:
        self.provider: TracerProvider | None = None
        """Makes tracers for other code, such as that of nodes; None when nothing is recorded."""
        self._next_span_id = 0
        self._exporter = exporter
        if exporter is not None:
            # Only processes that record import the SDK: the import takes a tenth of a second.
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

            tracing = self

            class Ids(RandomIdGenerator):
                """Random ids, except for a span whose id was chosen."""

                def generate_span_id(self) -> int:
                    return tracing._next_span_id or super().generate_span_id()

            self.provider = TracerProvider(
                resource=Resource.create({"service.name": service}),
                sampler=ParentBased(TraceIdRatioBased(sampling)),
                id_generator=Ids(),
                shutdown_on_exit=False,
            )
            self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer: Tracer = (self.provider or trace.NoOpTracerProvider()).get_tracer("tradewind")

    @property
    def recording(self) -> bool:
        """Whether spans are recorded at all."""
        return self.provider is not None

    def begin(
        self,
        name: str,
        parent: str = "",
        attributes: Attributes | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        start_ns: int | None = None,
        span_id: int = 0,
        linked_span_id: int = 0,
        linked_traceparent: str = "",
    ) -> Span:
        """Begin a span below the `traceparent` in `parent`, or at the root of a new trace; the caller ends it.

        `start_ns` counts from the epoch; None means now. `span_id` sets the span's id if others must know it
        beforehand. The span links to the span with the id `linked_span_id` in the same trace, and to that of the
        `traceparent` in `linked_traceparent`, in another trace. Call this only in the loop's thread.
        """
        context = context_from(parent)
        links = []
        if linked_span_id:
            trace_id = trace.get_current_span(context).get_span_context().trace_id
            links.append(Link(SpanContext(trace_id, linked_span_id, is_remote=True, trace_flags=TraceFlags(1))))
        if linked_traceparent:
            other = trace.get_current_span(context_from(linked_traceparent)).get_span_context()
            links += [Link(other)] if other.is_valid else []
        self._next_span_id = span_id
        try:
            return self.tracer.start_span(name, context, kind, attributes, links, start_time=start_ns)
        finally:
            self._next_span_id = 0

    def shutdown(self, timeout_s: float = FLUSH_S) -> None:
        """Send what is still held back, within `timeout_s`; what the endpoint has not taken by then is dropped.

        Call it from a thread.
        """
        if self.provider is None:
            return
        ending = threading.Timer(timeout_s, self._stop_exporter)
        ending.daemon = True
        ending.start()
        self.provider.shutdown()
        ending.cancel()

    def _stop_exporter(self) -> None:
        # The SDK bounds each batch by itself: without its exporter it soon gets through all of them.
        assert self._exporter is not None
        # Only servers log by structlog; workers, which import this module too, do without what it imports.
        from structlog import get_logger

        hint = "the endpoint for traces does not accept the remaining spans: see TRADEWIND_OTLP_ENDPOINT"
        get_logger(__name__).warning("spans_dropped", hint=hint)
        self._exporter.shutdown()


def open_tracing(
    service: str, endpoint: str | None, sampling: float = 1.0, *, timeout_s: float | None = None
) -> Tracing:
    """Return tracing to an OTLP endpoint such as `http://localhost:4317`, or tracing that is off for None.

    `timeout_s` bounds sending a batch of spans, retries included; None for OpenTelemetry's variables, or 10 s.
    """
    if not endpoint:
        return Tracing(service, None)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").addFilter(_lost_spans)
    return Tracing(service, OTLPSpanExporter(endpoint=endpoint, timeout=timeout_s), sampling)


def current_traceparent() -> str:
    """Return the W3C `traceparent` of the current span; "" when there is none."""
    return traceparent_of(trace.get_current_span())


def traceparent_of(span: Span) -> str:
    """Return the `traceparent` of a span; "" if the span is not valid."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def is_sampled(traceparent: str) -> bool:
    """Say whether spans below a `traceparent` are recorded: whoever began the trace decided that for all of it.

    Nothing is recorded below a malformed one.
    """
    return _SAMPLED.fullmatch(traceparent) is not None


def attempt_span_id(trace_id: str, task_id: str, attempt: int) -> int:
    """Return the id of the span in which an attempt is handed out, which any replica can compute by itself."""
    name = f"{trace_id}:{task_id}:{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") or 1


def context_from(traceparent: str) -> TraceContext:
    """Return the trace context that a `traceparent` names; an empty context when it is empty or malformed."""
    return _propagator.extract({TRACEPARENT: traceparent}, context=TraceContext())


def valid_traceparent(traceparent: str) -> str:
    """Return a `traceparent` that somebody else wrote; "" when it is malformed."""
    return traceparent_of(trace.get_current_span(context_from(traceparent))) if traceparent else ""


class CallTraces:
    """Makes the caller's `traceparent` current in the handler, with a span of its own when spans are recorded."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def around(self, method: str, behavior: Behavior) -> Behavior:
        """Surround the calls of one method."""

        async def passed_on(request: Any, context: Context) -> Any:
            traceparent = _traceparent_in(context)
            if not traceparent:
                return await behavior(request, context)
            token = otel_context.attach(context_from(traceparent))
            try:
                return await behavior(request, context)
            finally:
                otel_context.detach(token)

        async def recorded(request: Any, context: Context) -> Any:
            with self._tracing.tracer.start_as_current_span(
                method.lstrip("/"),
                context=context_from(_traceparent_in(context)),
                kind=SpanKind.SERVER,
                attributes={"rpc.system": "grpc", "rpc.method": method},
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    return await behavior(request, context)
                finally:
                    # None until somebody sets a code: the call went well.
                    code = context.code() or grpc.StatusCode.OK
                    if code is not grpc.StatusCode.OK:
                        span.set_status(StatusCode.ERROR, code.name)

        return recorded if self._tracing.recording and not method.startswith("/grpc.") else passed_on


def _traceparent_in(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == TRACEPARENT:
            return value if isinstance(value, str) else value.decode("ascii", errors="replace")
    return ""


class TraceUnaryUnaryInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Sends the current `traceparent` along with unary calls."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_traced(client_call_details), request)


class TraceUnaryStreamInterceptor(grpc.aio.UnaryStreamClientInterceptor):
    """Sends the current `traceparent` along with calls whose response is a stream."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_traced(client_call_details), request)


def _traced(details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
    traceparent = current_traceparent()
    if not traceparent:
        return details
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    metadata[TRACEPARENT] = traceparent
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def trace_ids() -> Mapping[str, str]:
    """Return `trace_id` and `span_id` of the current span for a log line, empty when there is none."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
