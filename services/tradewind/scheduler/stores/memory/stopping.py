"""Marking open runs of a flow as stopping, in memory."""

from dataclasses import replace

from tradewind.scheduler.domain.chain_state import StopRequest
from tradewind.scheduler.domain.log_line import LogLevel, LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import Data, Flow


def mark_stopping(
    data: Data, flow: Flow, stop: StopRequest, source: LogSource, *, sparing: bool = False
) -> tuple[RunName, ...]:
    """Mark runs that are not stopping yet, with `sparing` neither reruns nor those of backfills; return them."""
    names = flow.in_the_way if sparing else list(flow.open)
    marked = [name for name in names if not flow.open[name]]
    for name in marked:
        flow.open[name] = True
        run = flow.runs[name]
        before = run.state.stop
        kept = before or stop
        run.state = run.state._replace(
            version=run.state.version + 1,
            stop=replace(stop, timeout=kept.timeout, forced=kept.forced, request_id=kept.request_id),
        )
        data.announce(run.state)
        data.say(flow, name.cycle, LogLevel.WARNING, source, f"Stopping: {stop.reason}")
        data.open[name] = stop.at_ms
    return tuple(marked)
