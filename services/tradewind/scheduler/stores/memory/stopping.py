"""Marks open runs of a flow as stopping, in memory."""

from msgspec import structs

from tradewind.scheduler.domain.chain_state import StopRequest
from tradewind.scheduler.domain.log_line import LogLevel, LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import Data, Flow


def mark_stopping(
    data: Data, flow: Flow, stop: StopRequest, source: LogSource, *, blocking_only: bool = False
) -> tuple[RunName, ...]:
    """Mark the open runs that nobody has asked to stop yet; return them.

    With `blocking_only`, reruns, runs of backfills and runs for nodes of other flows are left alone.
    """
    names = flow.blocking_runs if blocking_only else list(flow.open)
    marked = [name for name in names if not flow.open[name] and flow.runs[name].state.stop is None]
    flow.open.update(dict.fromkeys(names, True))
    for name in marked:
        run = flow.runs[name]
        run.state = structs.replace(run.state, version=run.state.version + 1, stop=stop)
        data.publish(run.state)
        data.append_log_line(flow, name.cycle, LogLevel.WARNING, source, f"Stopping: {stop.reason}")
        data.open[name] = stop.at_ms
    return tuple(marked)
