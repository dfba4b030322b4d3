"""A real OTLP receiver: it takes the spans that exporters send, and returns them by trace."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


class ReceivedSpan(NamedTuple):
    """A span as received; `parent` and the `links` are span ids."""

    service: str
    name: str
    trace: bytes
    span: bytes
    parent: bytes
    links: tuple[bytes, ...]
    attributes: dict[str, Any]
    failed: bool


class Collector(TraceServiceServicer):
    """Holds each span once, however often it was sent."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._spans: dict[tuple[bytes, bytes], ReceivedSpan] = {}

    @property
    def spans(self) -> list[ReceivedSpan]:
        """All spans received so far."""
        return list(self._spans.values())

    def trace_of(self, name: str, **attributes: Any) -> list[ReceivedSpan]:
        """Return the spans of all traces with a span that has this name and these attributes (given without prefix)."""
        wanted = {f"tradewind.{key}": value for key, value in attributes.items()}
        traces = {each.trace for each in self.spans if each.name == name and wanted.items() <= each.attributes.items()}
        return [each for each in self.spans if each.trace in traces]

    async def Export(self, request: pb2.ExportTraceServiceRequest, context: object) -> pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            resource_attributes = {each.key: _value(each.value) for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._spans[span.trace_id, span.span_id] = ReceivedSpan(
                        resource_attributes["service.name"],
                        span.name,
                        span.trace_id,
                        span.span_id,
                        span.parent_span_id,
                        tuple(link.span_id for link in span.links),
                        {each.key: _value(each.value) for each in span.attributes},
                        span.status.code == span.status.STATUS_CODE_ERROR,
                    )
        return pb2.ExportTraceServiceResponse()


def tree(spans: list[ReceivedSpan]) -> list[str]:
    """Return each span as the path of names from its root, in order; `!` marks spans with an error."""
    by_id = {each.span: each for each in spans}

    def path(span: ReceivedSpan) -> str:
        name = f"{span.name}!" if span.failed else span.name
        parent = by_id.get(span.parent)
        if parent is None:
            return f"? > {name}" if span.parent else name
        return f"{path(parent)} > {name}"

    return sorted(map(path, spans))


@asynccontextmanager
async def running_collector(collector: Collector | None = None) -> AsyncIterator[Collector]:
    """Receive spans on a free port, with the given collector or a new one."""
    collector, server = collector or Collector(), grpc.aio.server()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    collector.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        await server.stop(None)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
