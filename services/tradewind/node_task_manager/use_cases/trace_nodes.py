"""Spans of the node task manager's work for a cycle: taking it, handing out its nodes, storing how they ended."""

import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import structs
from opentelemetry.trace import SpanKind, StatusCode

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitOutcome, SubmitResult
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.server.telemetry import Tracing, attempt_span_id, is_sampled, traceparent_of

_MAX_REPORTED = 20_000

_Note = TypeVar("_Note")


class TraceNodes:
    """Records spans below the traces that runs came with; a run without a trace, or not sampled, costs only a check.

    The store keeps only the trace that each run came with. The id of the span in which an attempt begins, or that says
    why it does not, is made from the attempt's name, so any replica can link a later attempt to it.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._reported: dict[str, tuple[str, int]] = {}
        self._begun: dict[str, str] = {}

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
        return [self._handed(item, "dispatch") if is_sampled(item.assignment.traceparent) else item for item in items]

    def answered(self, item: Ready, *, postponed: bool) -> None:
        """Record that a node task is not handed out: a cache had its result, or another does the same work."""
        if is_sampled(item.assignment.traceparent):
            self._handed(item, "postpone" if postponed else "cached")

    def reported(self, nonce: str, traceparent: str, eager_nonce: str = "") -> None:
        """Note that the end of an attempt arrived, in this trace context; an eager one may have been begun on it."""
        if is_sampled(traceparent):
            _note(self._reported, nonce, (traceparent, time.time_ns()))
            if eager_nonce:
                _note(self._begun, eager_nonce, traceparent)

    def ended(self, outcomes: Iterable[Outcome], refusals: Iterable[str]) -> None:
        """Record that ends of attempts, and beginnings of eager ones, were stored, or refused (those with a reason)."""
        for outcome, refused in zip(outcomes, refusals, strict=True):
            if outcome.eager and (before := self._begun.pop(outcome.nonce, "")):
                self._eagerly_begun(outcome, before, refused)
            known = self._reported.pop(outcome.nonce, None)
            if known is None:
                continue
            traceparent, begun_ns = known
            attributes = {**_attempt(outcome), "tradewind.outcome": outcome.kind.value}
            span = self._tracing.begin("complete", traceparent, attributes, start_ns=begun_ns)
            if refused:
                span.set_status(StatusCode.ERROR, refused)
            elif outcome.kind is OutcomeKind.FAILED:
                span.set_status(StatusCode.ERROR, outcome.error.code if outcome.error else "")
            span.end()

    def _eagerly_begun(self, outcome: Outcome, before: str, refused: str) -> None:
        """Record that a worker began an attempt by itself, in the trace context of the attempt before."""
        span_id = attempt_span_id(before.split("-")[1], outcome.task_id, outcome.attempt)
        span = self._tracing.begin("begin_eager", before, _attempt(outcome), span_id=0 if refused else span_id)
        if refused:
            span.set_status(StatusCode.ERROR, refused)
        span.end()

    def _handed(self, item: Ready, what: str) -> Ready:
        given = item.assignment
        trace_id = given.traceparent.split("-")[1]
        span_id = attempt_span_id(trace_id, given.task_id, given.attempt)
        linked = attempt_span_id(trace_id, given.task_id, given.attempt - 1) if given.attempt > 1 else 0
        if given.sent_before:
            # The span with the attempt's own id says that it was sent for the first time.
            span_id, linked = 0, span_id
        span = self._tracing.begin(
            f"{what} {item.node.node_type}",
            given.traceparent,
            {
                "tradewind.node_id": item.node.node_id,
                **_attempt(given),
                **({"tradewind.worker_id": given.worker_id} if what == "dispatch" else {}),
            },
            kind=SpanKind.PRODUCER if what == "dispatch" else SpanKind.INTERNAL,
            span_id=span_id,
            linked_span_id=linked,
        )
        span.end()
        return structs.replace(item, assignment=structs.replace(given, traceparent=traceparent_of(span)))


def _attempt(of: Assignment | Outcome) -> dict[str, str | int]:
    return {"tradewind.node_task_id": of.task_id, "tradewind.attempt": of.attempt}


def _note(notes: dict[str, _Note], nonce: str, note: _Note) -> None:
    if len(notes) >= _MAX_REPORTED:
        # The oldest report was neither stored nor refused, perhaps because its worker left.
        del notes[next(iter(notes))]
    notes[nonce] = note
