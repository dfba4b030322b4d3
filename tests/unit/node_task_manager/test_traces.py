"""Spans of the node task manager: below the run's trace, linked from attempt to attempt, none when tracing is off."""

import pytest
from msgspec import structs
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from tradewind.node_task_manager.domain.component import RunSubmission, SubmitOutcome, SubmitResult
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.ports.work import Assignment, Outcome, OutcomeKind
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.server import telemetry
from tradewind.server.telemetry import Tracing
from tradewind.testing import running_stack
from tradewind.worker import node

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
NOT_SAMPLED = PARENT[:-1] + "0"


class Recorded:
    """The traces of one replica."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._tracing = Tracing("test", self._exporter)
        traces = TraceNodes.for_tracing(self._tracing)
        assert traces is not None
        self.traces = traces

    def spans(self) -> tuple[ReadableSpan, ...]:
        """Return all recorded spans; nothing is recorded afterwards."""
        self._tracing.shutdown()
        return self._exporter.get_finished_spans()


def given(attempt: int, traceparent: str = PARENT) -> Ready:
    """Return an attempt of a node task, to be handed out."""
    assignment = Assignment(
        "w", "f:0:0:a", f"n{attempt}", attempt, "0", "plan", 0, "run", "ada", traceparent=traceparent
    )
    return Ready(0, assignment, RunName("f", 0, 0), PlanNode("a", "model"), ())


def id_of(span: ReadableSpan) -> int:
    """Return the id of a span."""
    context: SpanContext | None = span.context
    assert context is not None
    return context.span_id


def test_attempts_on_two_replicas_are_linked_without_communication() -> None:
    replicas = Recorded(), Recorded()
    handed = [replica.traces.dispatched([given(at)])[0] for at, replica in enumerate(replicas, 1)]
    (first,), (second,) = (replica.spans() for replica in replicas)
    assert first.name == "dispatch model"
    assert first.kind is trace.SpanKind.PRODUCER
    assert not first.links
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    for span, item in zip((first, second), handed, strict=True):
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
        assert item.assignment.traceparent == f"00-{TRACE}-{id_of(span):016x}-01"


def test_attempt_that_is_sent_again_is_another_span_linked_to_the_first() -> None:
    replica = Recorded()
    offered = given(2)
    again = structs.replace(offered, assignment=structs.replace(offered.assignment, sent_before=True))
    handed = [replica.traces.dispatched([item])[0] for item in (offered, again)]
    first, second = replica.spans()
    assert id_of(first) != id_of(second)
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    assert handed[1].assignment.traceparent == f"00-{TRACE}-{id_of(second):016x}-01"


def test_complete_span_has_the_parent_that_its_worker_reported() -> None:
    replica = Recorded()
    not_valid = (f"ff{PARENT[2:]}", PARENT.replace(TRACE, "0" * 32), f"{PARENT[:36]}{'0' * 16}-01", "0" * 1000 + "1")
    for number, traceparent in enumerate((PARENT, PARENT, PARENT, NOT_SAMPLED, "", *not_valid)):
        replica.traces.reported(f"n{number}", traceparent)
    error = TaskError("NODE_ERROR", "what it says may be long")
    outcomes = [
        Outcome("f:0:0:a", 1, "n0", OutcomeKind.COMPLETED),
        Outcome("f:0:0:b", 1, "n1", OutcomeKind.FAILED, error=error),
        Outcome("f:0:0:c", 1, "n2", OutcomeKind.COMPLETED),
        *(Outcome("f:0:0:d", 1, f"n{number}", OutcomeKind.COMPLETED) for number in range(3, 10)),
    ]
    replica.traces.ended(outcomes, ["", "", "the lease has lapsed", *[""] * 7])
    spans = replica.spans()
    assert [span.name for span in spans] == ["complete"] * 3
    assert {span.parent and f"{span.parent.span_id:016x}" for span in spans} == {PARENT.split("-")[2]}
    assert [(span.status.is_ok, span.status.description) for span in spans] == [
        (True, None),
        (False, "NODE_ERROR"),
        (False, "the lease has lapsed"),
    ]


def test_ends_never_stored_do_not_crowd_out_later_ones() -> None:
    replica = Recorded()
    for number in range(30_000):
        replica.traces.reported(f"n{number}", PARENT)
    outcomes = [Outcome(f"f:{at}:0:a", 1, f"n{at}", OutcomeKind.COMPLETED) for at in (0, 29_999)]
    replica.traces.ended(outcomes, ["", ""])
    assert [dict(span.attributes or {})["tradewind.node_task_id"] for span in replica.spans()] == ["f:29999:0:a"]


def test_unsampled_work_is_unchanged_and_makes_no_spans() -> None:
    replica = Recorded()
    items = [given(1, NOT_SAMPLED), given(2, ""), given(3, "1"), given(4, "00-ab-cd-01")]
    assert replica.traces.dispatched(items) == items
    run = RunSubmission(RunName("f", 0, 0), "run", "ada", (), 0, traceparent=NOT_SAMPLED)
    replica.traces.submitted([(run, SubmitResult(SubmitOutcome.ACCEPTED))], 0)
    assert replica.spans() == ()


@pytest.mark.parametrize("outcome", [SubmitOutcome.ACCEPTED, SubmitOutcome.PLAN_UNKNOWN, SubmitOutcome.QUEUE_FULL])
def test_submission_makes_a_span_unless_its_plan_is_unknown(outcome: SubmitOutcome) -> None:
    replica = Recorded()
    run = RunSubmission(RunName("f", 0, 0), "run", "ada", (), 0, traceparent=PARENT)
    replica.traces.submitted([(run, SubmitResult(outcome))], 5)
    spans = replica.spans()
    assert [(span.name, span.start_time) for span in spans] == [("submit", 5)] * (outcome != "plan_unknown")
    assert all(span.status.is_ok == (outcome == "accepted") for span in spans)


@node("plain", outputs=["trace"])
async def plain() -> str:
    """Emit the trace that it runs in."""
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


async def test_disabled_tracing_makes_no_spans_and_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRADEWIND_OTLP_ENDPOINT", raising=False)
    made: list[str] = []

    def count(name: str) -> object:
        return lambda *args, **kwargs: made.append(name)

    monkeypatch.setattr(Tracing, "begin", count("begin"))
    monkeypatch.setattr(trace.NoOpTracer, "start_span", count("start_span"))
    monkeypatch.setattr(telemetry, "context_from", count("context_from"))
    assert TraceNodes.for_tracing(Tracing("test", None)) is None
    async with running_stack([plain]) as client:
        task = await client.submit_task("plain", {})
        assert (await task.wait(30)).outputs == {"trace": "0" * 32}
    assert made == []
