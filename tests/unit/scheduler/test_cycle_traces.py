"""One trace for each cycle."""

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.chain_state import CycleOrigin
from tradewind.scheduler.use_cases.begin_cycles import BeginCycles, Wish
from tradewind.scheduler.use_cases.trace_runs import TraceRuns
from tradewind.server.telemetry import Tracing


async def test_the_beginning_of_a_cycle_is_a_span_that_the_rest_hangs_on() -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    exporter = InMemorySpanExporter()
    tracing = Tracing("test", exporter)
    begin = BeginCycles(
        scheduler.stores.cycles, scheduler.definitions, scheduler.open_states, TraceRuns(tracing), scheduler.alarm, 5000
    )
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    asked = await begin([Wish("f", traceparent=f"00-{trace_id}-b7ad6b7169203331-01"), Wish("f")])
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
