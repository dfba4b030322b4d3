"""Spans of the node task manager's work for a cycle: taking it, handing out its nodes, storing how they ended."""

import time
from collections.abc import Iterable, Sequence

from msgspec import structs
from opentelemetry.trace import SpanKind, StatusCode

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitOutcome, SubmitResult
from tradewind.node_task_manager.ports.work import Outcome, OutcomeKind
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.server.telemetry import Tracing, attempt_span_id, is_sampled, traceparent_of

_MAX_REPORTED = 20_000


class TraceNodes:
    """Records spans below the traces that runs came with; a run without a trace, or not sampled, costs only a check.

    The store keeps only the trace that each run came with. The id of the span in which an attempt is handed out is made
    from the attempt's name, so any replica can link a later attempt to it.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._reported: dict[str, tuple[str, int]] = {}

    @classmethod
    def for_tracing(cls, tracing: Tracing) -> "TraceNodes | None":
        """Return a recorder for `tracing`, None when that records nothing."""
        return cls(tracing) if tracing.recording else None

    def submitted(self, runs: Iterable[tuple[RunSubmission, SubmitResult]], begun_ns: int) -> None:
        """Record that runs submitted at `begun_ns` were answered."""
        for run, result in runs:
            if is_sampled(run.traceparent) and result.outcome is not SubmitOutcome.PLAN_UNKNOWN:
                attributes: dict[str, str | int] = {
                    "tradewind.run_id": run.run_id,
                    "tradewind.components": len(run.components),
                    "tradewind.outcome": result.outcome.value,
                }
                span = self._tracing.begin("submit", run.traceparent, attributes, start_ns=begun_ns)
                if result.outcome is not SubmitOutcome.ACCEPTED and result.outcome is not SubmitOutcome.DUPLICATE:
                    span.set_status(StatusCode.ERROR, result.outcome.value)
                span.end()

    def dispatched(self, items: Sequence[Ready]) -> list[Ready]:
        """Record that node tasks are handed out; return them with the trace contexts for their workers to continue."""
        return [self._dispatched(item) if is_sampled(item.assignment.traceparent) else item for item in items]

    def reported(self, nonce: str, traceparent: str) -> None:
        """Note that the end of an attempt arrived, in this trace context."""
        if is_sampled(traceparent):
            if len(self._reported) >= _MAX_REPORTED:
                # The oldest end was neither stored nor refused, perhaps because its worker left.
                del self._reported[next(iter(self._reported))]
            self._reported[nonce] = (traceparent, time.time_ns())

    def ended(self, outcomes: Iterable[Outcome], refusals: Iterable[str]) -> None:
        """Record that ends of attempts were stored, or refused (those with a reason)."""
        for outcome, refused in zip(outcomes, refusals, strict=True):
            known = self._reported.pop(outcome.nonce, None)
            if known is None:
                continue
            traceparent, begun_ns = known
            attributes: dict[str, str | int] = {
                "tradewind.node_task_id": outcome.task_id,
                "tradewind.attempt": outcome.attempt,
                "tradewind.outcome": outcome.kind.value,
            }
            span = self._tracing.begin("complete", traceparent, attributes, start_ns=begun_ns)
            if refused:
                span.set_status(StatusCode.ERROR, refused)
            elif outcome.kind is OutcomeKind.FAILED:
                span.set_status(StatusCode.ERROR, outcome.error.code if outcome.error else "")
            span.end()

    def _dispatched(self, item: Ready) -> Ready:
        given = item.assignment
        trace_id = given.traceparent.split("-")[1]
        span_id = attempt_span_id(trace_id, given.task_id, given.attempt)
        linked = attempt_span_id(trace_id, given.task_id, given.attempt - 1) if given.attempt > 1 else 0
        if given.passed_on:
            # The span with the attempt's own id says that it was offered to the first worker.
            span_id, linked = 0, span_id
        span = self._tracing.begin(
            f"dispatch {item.node.node_type}",
            given.traceparent,
            {
                "tradewind.node_id": item.node.node_id,
                "tradewind.node_task_id": given.task_id,
                "tradewind.attempt": given.attempt,
                "tradewind.worker_id": given.worker_id,
            },
            kind=SpanKind.PRODUCER,
            span_id=span_id,
            linked_span_id=linked,
        )
        span.end()
        return structs.replace(item, assignment=structs.replace(given, traceparent=traceparent_of(span)))
