"""Spans of triggers that fire: each is the root of a trace of the work that it begins."""

from collections.abc import Sequence
from dataclasses import replace

from opentelemetry.trace import SpanKind

from tradewind.server.telemetry import Tracing, traceparent_of
from tradewind.trigger.domain.claim import DueTrigger


class TraceFirings:
    """Records deliveries of due triggers."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def __call__(self, due: Sequence[DueTrigger]) -> tuple[DueTrigger, ...]:
        """Return the triggers, each with the trace context for the work that it begins if traces are recorded."""
        if not self._tracing.recording:
            return tuple(due)
        return tuple(map(self._traced, due))

    def _traced(self, due: DueTrigger) -> DueTrigger:
        trigger = due.trigger
        attributes: dict[str, str | int] = {
            "tradewind.trigger_id": trigger.id,
            "tradewind.planned_ms": trigger.planned_ms,
            "tradewind.late_ms": due.delivered_ms - trigger.planned_ms,
        }
        span = self._tracing.begin("fire", "", attributes, kind=SpanKind.PRODUCER)
        span.end()
        return replace(due, traceparent=traceparent_of(span))
