"""Why a cycle is still open, or how it ended: what explanations of flows and of nodes have in common."""

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.ports.peers import NodeTasks, PeerUnavailable
from tradewind.scheduler.use_cases.failed_nodes import failed_nodes, failure_text
from tradewind.server.reasons import Fact, Reason, iso

_MAX_NAMED = 20
"""The most failed nodes to name."""


async def is_known(node_tasks: NodeTasks, state: ChainState) -> bool:
    """Say whether the node task manager has a run; the record notes that only some time after submission."""
    if state.submitted_ms or state.components:
        return True
    try:
        return any(view.run_id == state.facts.run_id for view in await node_tasks.components([state]))
    except PeerUnavailable:
        return False


def open_cycle_reasons(state: ChainState, *, known: bool) -> list[Reason]:
    """Return what an open cycle waits for as a whole; `known` says whether the node task manager has it."""
    cycle, since = state.name.cycle, iso(state.facts.start_ms)
    reasons = []
    if state.stop is not None:
        stop = state.stop
        text = f'cycle {cycle} is stopping: "{stop.by}" asked for it at {iso(stop.at_ms)}'
        text += f": {stop.reason}" if stop.reason else ""
        facts: dict[str, Fact] = {"cycle": cycle, "by": stop.by, "why": stop.reason, "since": iso(stop.at_ms)}
        reasons.append(Reason("stopping", text, facts))
    if not known:
        text = f"cycle {cycle} has been waiting since {since} for the node task manager to accept it"
        text += f": {state.reason}" if state.reason else ""
        facts = {"cycle": cycle, "since": since, "why": state.reason}
        reasons.append(Reason("waits_for_node_task_manager", text, facts))
    return reasons


async def ended_reason(node_tasks: NodeTasks, state: ChainState, code: str) -> Reason:
    """Return how a cycle ended, and which of its nodes failed. Raises PeerUnavailable."""
    failed = await failed_nodes(node_tasks, state, min(state.counts().failed, _MAX_NAMED))
    text = f"cycle {state.name.cycle} ended as {state.status.value} at {iso(state.end_ms)}"
    text += f": {state.reason}" if state.reason else ""
    text += "".join(f"; {each}" for each in map(failure_text, failed))
    facts: dict[str, Fact] = {
        "status": state.status.value,
        "at": iso(state.end_ms),
        "why": state.reason,
        "failed_nodes": [
            {"node_id": task.node_id, "error_code": task.error.code, "error_message": task.error.message}
            for task in failed
        ],
    }
    return Reason(code, text, facts)
