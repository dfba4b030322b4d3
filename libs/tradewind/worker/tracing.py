"""Runs nodes in a span that continues the cycle's trace, if the process records traces."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.server.telemetry import context_from, open_tracing, traceparent_of
from tradewind.worker.attempt import Attempt
from tradewind.worker.telemetry import telemetry_settings

SERVICE = "tradewind-worker"
_SEND_S = 3.0


class NodeTracer:
    """Makes a CONSUMER span for each node that comes with a trace context."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("tradewind.worker")

    @classmethod
    def configured(cls) -> "NodeTracer | None":
        """Return a tracer if the process has a tracer provider, or if TRADEWIND_OTLP_ENDPOINT asks for one.

        Nodes then find that provider through OpenTelemetry's API. None costs nodes nothing.
        """
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            settings = telemetry_settings()
            if settings is None or not settings.otlp_endpoint:
                return None
            tracing = open_tracing(SERVICE, settings.otlp_endpoint, settings.trace_sampling, timeout_s=_SEND_S)
            assert tracing.provider is not None
            provider = tracing.provider
            trace.set_tracer_provider(provider)
            atexit.register(tracing.shutdown)
        return cls(provider)

    async def within_span(
        self, attempt: Attempt, run: Callable[[], Coroutine[Any, Any, work_pb2.NodeTaskFailure | None]]
    ) -> None:
        """Await `run()`, which returns the failure if there was one, in a span named after the node type."""
        assignment = attempt.assignment
        attributes: dict[str, str | int] = {
            "tradewind.flow_id": assignment.flow_id,
            "tradewind.cycle": assignment.cycle,
            "tradewind.run": assignment.run,
            "tradewind.node_id": assignment.node_id,
            "tradewind.attempt": assignment.attempt,
        }
        with self._tracer.start_as_current_span(
            f"node {assignment.node_type}",
            context=context_from(assignment.traceparent),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            # The failure is free of secrets; an exception's own text may not be.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            attempt.traceparent = traceparent_of(span)
            failure = await run()
            if failure is not None:
                error = failure.error
                span.set_attribute("error.type", error.type or error.code or "terminated")
                span.set_status(Status(StatusCode.ERROR, error.message))

    @contextmanager
    def continuing(self, traceparent: str) -> Iterator[None]:
        """Make the worker's span current here, in a process for nodes, so that the node's own spans join it."""
        token = otel_context.attach(context_from(traceparent))
        try:
            yield
        finally:
            otel_context.detach(token)

    def flush(self) -> None:
        """Send what was recorded, for 3 seconds at most."""
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            # The SDK ignores a timeout here, and the exporter bounds each batch by itself.
            sending = threading.Thread(target=flush, daemon=True)
            sending.start()
            sending.join(_SEND_S)

    async def leave(self) -> None:
        """Send what was recorded, without holding up the loop."""
        await asyncio.to_thread(self.flush)
