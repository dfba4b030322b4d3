"""Marking open runs of a flow as stopping, in memory."""

from collections.abc import Container
from dataclasses import replace

from tradewind.scheduler.domain.chain_state import StopRequest
from tradewind.scheduler.domain.log_line import LogLevel, LogSource
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.memory.data import Data, Flow


def mark_stopping(
    data: Data, flow: Flow, stop: StopRequest, source: LogSource, spared: Container[RunName] = ()
) -> tuple[RunName, ...]:
    """Mark the runs that are not stopping yet, but for those spared, and return them."""
    marked = [name for name, stopping in flow.open.items() if not stopping and name not in spared]
    for name in marked:
        flow.open[name] = True
        run = flow.runs[name]
        timeout = run.state.stop is not None and run.state.stop.timeout
        run.state = replace(run.state, version=run.state.version + 1, stop=replace(stop, timeout=timeout))
        data.announce(run.state)
        data.say(flow, name.cycle, LogLevel.WARNING, source, f"Stopping: {stop.reason}")
        data.open[name] = stop.at_ms
    return tuple(marked)
