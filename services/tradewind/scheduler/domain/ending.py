"""Decides how a run ends: its outcome and the reason."""

from dataclasses import replace

from msgspec import structs

from tradewind.scheduler.domain.chain_state import ERROR, REASON, STATUS, ChainState, ComponentEnd
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.outcome import cycle_outcome

_ERRORS = {
    CycleStatus.PARTIAL: "NODES_FAILED",
    CycleStatus.FAILED: "NODES_FAILED",
    CycleStatus.TIMEOUT: "CYCLE_TIMEOUT",
    CycleStatus.CANCELLED: "CYCLE_STOPPED",
}


def ended_state(state: ChainState) -> tuple[ChainState, tuple[str, ...]]:
    """Return a run whose components have all ended, in its terminal status, and the fields that change."""
    counts = state.counts()
    if state.stop is None and not counts.failed and not counts.terminated:
        status, reason = CycleStatus.COMPLETED, ""
    else:
        status, reason = outcome_so_far(state)
        handlers = _total(state, handling=True)
        if unsuccessful := handlers.failed + handlers.terminated:
            status = CycleStatus.PARTIAL if status is CycleStatus.COMPLETED else status
            handlers_text = f"{unsuccessful} of the nodes that handle the outcome did not complete"
            reason = f"{reason}; {handlers_text}" if reason else handlers_text
    error = _ERRORS.get(status, "")
    final = ChainState(
        state.name,
        state.facts,
        state.version,
        status,
        state.components,
        reason,
        state.stop,
        state.submitted_ms,
        notes=replace(state.notes, error=error) if error else state.notes,
    )
    if error:
        return final, (STATUS, REASON, ERROR)
    return final, (STATUS,) if reason == state.reason else (STATUS, REASON)


def outcome_so_far(state: ChainState) -> tuple[CycleStatus, str]:
    """Return the outcome of the components that do not handle the outcome, and the reason; they must all have ended."""
    nodes = _total(state, handling=False)
    status = cycle_outcome(nodes, state.facts.failure_policy, state.stop)
    return status, _reason(state, status, nodes)


def _total(state: ChainState, *, handling: bool) -> ComponentEnd:
    """Return the sum over the components that handle the outcome, or over the others."""
    handlers = state.facts.handlers.all if state.facts.handlers is not None else ()
    return ComponentEnd.total([end for key, end in state.components.items() if (key in handlers) is handling])


def given_up_state(state: ChainState, reason: str) -> tuple[ChainState, tuple[str, ...]]:
    """Return a run that can never be carried out, ended as failed, and the fields that change."""
    notes = replace(state.notes, error="DEFINITION_LOST")
    return structs.replace(state, status=CycleStatus.FAILED, reason=reason, notes=notes), (STATUS, REASON, ERROR)


def _reason(state: ChainState, status: CycleStatus, counts: ComponentEnd) -> str:
    parts = [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"{counts.terminated} terminated"] if counts.terminated else []
    parts += [f"{counts.skipped} skipped"] if counts.skipped else []
    total = state.facts.node_count
    counts_text = f"{', '.join(parts) or 'all completed'} of {total} node{'s' * (total != 1)}"
    if state.stop is not None:
        why = state.stop.reason or f'stopped by "{state.stop.by}"'
        return f"{why} ({counts_text})"
    return counts_text if status is not CycleStatus.COMPLETED else ""
