"""Records spans of the scheduler's work on a cycle: beginning and ending it. Costs one check if nothing is recorded."""

import time
from collections.abc import Sequence

from opentelemetry.trace import Span, StatusCode

from tradewind.scheduler.domain.beginning import BeginAnswer
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.server.telemetry import Tracing, is_sampled, traceparent_of

_FAULTS = (CycleStatus.FAILED, CycleStatus.TIMEOUT)


class TraceRuns:
    """Records the beginnings and ends of cycles.

    The beginning is the root of a cycle's trace, unless a call or a trigger is.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._open_spans: dict[str, Span] = {}

    def begin_span(self, flow_id: str, origin: str, parent: str, source: str = "") -> str:
        """Begin the span of a run that is about to begin; a rerun is linked to the previous run, of context `source`.

        Returns the trace context of the run, or `parent` when nothing is recorded.
        """
        if not self._tracing.recording:
            return parent
        attributes = {"tradewind.flow_id": flow_id, "tradewind.origin": origin}
        span = self._tracing.begin("begin_cycle", parent, attributes, linked_traceparent=source)
        traceparent = traceparent_of(span)
        self._open_spans[traceparent] = span
        return traceparent

    def end_spans(self, traceparents: Sequence[str], answers: Sequence[BeginAnswer] = ()) -> None:
        """End the spans of cycles that were about to begin; no answers means that the store has failed."""
        if not self._tracing.recording:
            return
        for at, traceparent in enumerate(traceparents):
            span = self._open_spans.pop(traceparent, None)
            if span is None:
                continue
            if answers:
                answer = answers[at]
                span.set_attribute("tradewind.outcome", answer.outcome.value)
                if answer.run is not None:
                    span.set_attribute("tradewind.cycle", answer.run.cycle)
                    span.set_attribute("tradewind.run", answer.run.run)
            else:
                span.set_status(StatusCode.ERROR, "the store has failed")
            span.end()

    def record_end(self, state: ChainState) -> None:
        """Record that a run has ended."""
        if not (self._tracing.recording and is_sampled(state.facts.traceparent)):
            return
        attributes: dict[str, str | int] = {
            "tradewind.flow_id": state.name.flow_id,
            "tradewind.cycle": state.name.cycle,
            "tradewind.run": state.name.run,
            "tradewind.status": state.status.value,
        }
        span = self._tracing.begin("end_cycle", state.facts.traceparent, attributes, start_ns=time.time_ns())
        if state.status in _FAULTS:
            span.set_status(StatusCode.ERROR, state.reason)
        span.end()
