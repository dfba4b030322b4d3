"""Lets the components that handle the outcome of a cycle begin, once all others have ended."""

import json
from collections.abc import Collection
from typing import Any

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.ending import outcome_so_far
from tradewind.scheduler.domain.handlers import MAX_FAILED, Phase, outcome_value
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.scheduler.use_cases.failed_nodes import failed_nodes

_STATUS_NAMES = {
    NodeTaskStatus.NODE_TASK_STATUS_FAILED: "failed",
    NodeTaskStatus.NODE_TASK_STATUS_TERMINATED: "terminated",
}
_LONGEST = 1000
"""The most characters of an error or reason to pass on."""


class ReleaseHandlers:
    """Goes by the record: components released before a crash are left alone, the others are released now."""

    def __init__(self, node_tasks: NodeTasks) -> None:
        self._node_tasks = node_tasks

    async def __call__(self, state: ChainState, withheld: Collection[str]) -> None:
        """Release those of the withheld components that are due. Raises PeerUnavailable."""
        handlers = state.facts.handlers
        if handlers is None or state.phase is Phase.MAIN:
            return
        status, reason = outcome_so_far(state)
        due = handlers.due(state.components, withheld, state.facts.component_count, status)
        if not due:
            return
        unsuccessful = sum(end.failed + end.terminated for end in state.components.values())
        wanted = min(unsuccessful, MAX_FAILED) if not all(due.values()) else 0
        failed = [_failed_node(task) for task in await failed_nodes(self._node_tasks, state, wanted, _STATUS_NAMES)]
        inputs = json.loads(state.facts.inputs_json or "{}")
        inputs["outcome"] = outcome_value(status, reason, failed, unsuccessful)
        await self._node_tasks.release(state, due, json.dumps(inputs, ensure_ascii=False))


def _failed_node(task: NodeTask) -> dict[str, Any]:
    error = None
    if task.HasField("error"):
        error = {"code": task.error.code, "type": task.error.type, "message": task.error.message[:_LONGEST]}
    return {
        "node_id": task.node_id,
        "status": _STATUS_NAMES[task.status],
        "reason": task.reason[:_LONGEST],
        "error": error,
    }
