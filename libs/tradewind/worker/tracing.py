"""Runs nodes in a span that continues the cycle's trace, where the process has telemetry configured."""

from collections.abc import Callable, Coroutine
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tradewind.api.node_task_manager.v1 import work_pb2

_PROPAGATOR = TraceContextTextMapPropagator()


class NodeTracer:
    """Makes a CONSUMER span for each node that comes with a trace context."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("tradewind.worker")

    @classmethod
    def configured(cls) -> "NodeTracer | None":
        """Return a tracer when the process has set a tracer provider; None costs nodes nothing."""
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
        return cls(provider)

    async def within_span(
        self,
        assignment: work_pb2.NodeTaskAssignment,
        run: Callable[[], Coroutine[Any, Any, work_pb2.NodeTaskFailure | None]],
    ) -> None:
        """Await `run()`, which returns the failure if there was one, in a span named for the node type."""
        parent = _PROPAGATOR.extract({"traceparent": assignment.traceparent})
        attributes: dict[str, str | int] = {
            "tradewind.flow_id": assignment.flow_id,
            "tradewind.cycle": assignment.cycle,
            "tradewind.run": assignment.run,
            "tradewind.node_id": assignment.node_id,
            "tradewind.attempt": assignment.attempt,
        }
        with self._tracer.start_as_current_span(
            f"node {assignment.node_type}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            # What the failure holds is free of secrets; an exception's own text may not be.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            failure = await run()
            if failure is not None:
                error = failure.error
                span.set_attribute("error.type", error.type or error.code or "terminated")
                span.set_status(Status(StatusCode.ERROR, error.message))
