"""A cycle's log: the beginnings and ends of its runs, taken from their records, merged with the lines written."""

from collections import deque
from collections.abc import Iterable, Sequence

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogLine, LogSource

_LEVELS = {
    CycleStatus.COMPLETED: LogLevel.INFO,
    CycleStatus.PARTIAL: LogLevel.WARNING,
    CycleStatus.CANCELLED: LogLevel.WARNING,
    CycleStatus.FAILED: LogLevel.ERROR,
    CycleStatus.TIMEOUT: LogLevel.ERROR,
}


def cycle_log(runs: Iterable[ChainState], written: Sequence[LogLine]) -> list[LogLine]:
    """Return all lines of a cycle, oldest first, from its runs in order and the lines written, oldest first."""
    remaining = deque(written)
    lines: list[LogLine] = []
    for state in runs:
        if state.name.run:
            lines += _until(remaining, state.facts.start_ms - 1)
        lines.append(_beginning(state))
        if state.end_ms:
            lines += _until(remaining, state.end_ms)
            lines.append(_end(state))
    lines += remaining
    return lines


def _until(remaining: deque[LogLine], at_ms: int) -> Iterable[LogLine]:
    while remaining and remaining[0].at_ms <= at_ms:
        yield remaining.popleft()


def _beginning(state: ChainState) -> LogLine:
    _, cycle, run = state.name
    text = f"Starting cycle {cycle}"
    if state.facts.rerun is not None:
        text = f'Starting run {run} of cycle {cycle}, by "{state.facts.rerun.by}"'
    return _line(state, "begun", LogLevel.INFO, text, state.facts.start_ms)


def _end(state: ChainState) -> LogLine:
    text = f"Cycle {state.name.cycle} {state.status.value}" + (f": {state.reason}" if state.reason else "")
    return _line(state, "ended", _LEVELS[state.status], text, state.end_ms)


def _line(state: ChainState, kind: str, level: LogLevel, text: str, at_ms: int) -> LogLine:
    flow_id, cycle, run = state.name
    return LogLine(f"{at_ms}-{kind}-{run}", flow_id, cycle, "", level, LogSource.SCHEDULER, text, at_ms)
