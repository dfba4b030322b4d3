"""Decides how a run ends: its outcome and the reason."""

from collections.abc import Collection
from dataclasses import replace

from tradewind.scheduler.domain.chain_state import ERROR, REASON, STATUS, ChainState, ComponentEnd
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.node_counts import NodeCounts
from tradewind.scheduler.domain.outcome import ComponentOutcome, cycle_outcome

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
        handlers = _sum(state, state.facts.handlers.all) if state.facts.handlers is not None else ComponentEnd()
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
    main = state
    handlers = state.facts.handlers
    if handlers is not None:
        components = {key: end for key, end in state.components.items() if key not in handlers.all}
        main = state._replace(components=components)
    status = _outcome(main)
    return status, _reason(main, status, main.counts())


def _sum(state: ChainState, ids: Collection[str]) -> ComponentEnd:
    ends = [end for key, end in state.components.items() if key in ids]
    return ComponentEnd(*(sum(column) for column in zip(*ends, strict=True))) if ends else ComponentEnd()


def given_up_state(state: ChainState, reason: str) -> tuple[ChainState, tuple[str, ...]]:
    """Return a run that can never be carried out, ended as failed, and the fields that change."""
    notes = replace(state.notes, error="DEFINITION_LOST")
    return state._replace(status=CycleStatus.FAILED, reason=reason, notes=notes), (STATUS, REASON, ERROR)


def _outcome(state: ChainState) -> CycleStatus:
    ended_by = None
    if state.stop is not None:
        ended_by = CycleStatus.TIMEOUT if state.stop.timeout else CycleStatus.CANCELLED
    outcomes = [
        ComponentOutcome(
            NodeCounts(completed=end.completed, failed=end.failed, terminated=end.terminated, skipped=end.skipped),
            end.sinks_completed,
        )
        for end in state.components.values()
    ]
    return cycle_outcome(outcomes, state.facts.failure_policy, ended_by)


def _reason(state: ChainState, status: CycleStatus, counts: ComponentEnd) -> str:
    parts = [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"{counts.terminated} terminated"] if counts.terminated else []
    parts += [f"{counts.skipped} skipped"] if counts.skipped else []
    counts_text = f"{', '.join(parts) or 'all completed'} of {state.facts.node_count} nodes"
    if state.stop is not None:
        return (
            f"{state.stop.reason} ({counts_text})"
            if state.stop.reason
            else f"stopped by {state.stop.by} ({counts_text})"
        )
    return counts_text if status is not CycleStatus.COMPLETED else ""
