"""One trace for each cycle."""

from msgspec import structs
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.unit.scheduler.memory_scheduler import MemoryScheduler, wakes_nobody
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, CycleRequest
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.telemetry import Tracing

TRACED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_beginning_span_is_the_parent_of_its_cycle() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    exporter = InMemorySpanExporter()
    tracing = Tracing("test", exporter)
    begin = BeginCycles(
        scheduler.stores.cycles,
        scheduler.definitions,
        scheduler.open_states,
        scheduler.numbers,
        TraceRuns(tracing),
        wakes_nobody,
        5000,
    )
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    asked = await begin([CycleRequest("f", traceparent=f"00-{trace_id}-b7ad6b7169203331-01"), CycleRequest("f")])
    tracing.shutdown()
    first, second = (begun.answer.state.facts.traceparent for begun in asked if begun.answer.state)
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["begin_cycle"] * 2
    assert [f"{span.context.span_id:016x}" for span in spans if span.context] == [
        first.split("-")[2],
        second.split("-")[2],
    ]
    assert first.split("-")[1] == trace_id
    assert second.split("-")[1] != trace_id
    assert spans[0].attributes is not None
    assert spans[0].attributes["tradewind.origin"] == CycleOrigin.RUN_FLOW


def test_span_of_a_rerun_links_the_previous_run_and_shows_a_store_failure() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing("test", exporter)
    traces = TraceRuns(tracing)
    again = traces.begin_span("f", "rerun", "", TRACED)
    assert again.split("-")[1] != TRACED.split("-")[1]
    traces.end_spans([again])
    traces.end_spans([again])
    tracing.shutdown()
    (span,) = exporter.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACED.split("-")[1]]
    assert span.status.description == "the store has failed"


async def test_end_of_a_sampled_cycle_is_a_span_below_its_beginning() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    (begun,) = await scheduler.begin([CycleRequest("f")])
    state = begun.answer.state
    assert state is not None
    exporter = InMemorySpanExporter()
    tracing = Tracing("test", exporter)
    traces = TraceRuns(tracing)
    for traceparent in (TRACED, TRACED[:-1] + "0", ""):
        facts = structs.replace(state.facts, traceparent=traceparent)
        traces.record_end(structs.replace(state, facts=facts, status=CycleStatus.TIMEOUT, reason="it took too long"))
    tracing.shutdown()
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.status.description) == ("end_cycle", "it took too long")
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == TRACED.split("-")[2]
