"""The runs that a request names, by ids of node tasks or of a cycle."""

from typing import Any

from tradewind.node_task_manager.domain.names import TASK, RunName, TaskName
from tradewind.node_task_manager.rpc.checks import at_most

_MAX_IDS = 100
"""No handler takes more ids; each may be of another run, and the gate reads those before the handler counts ids."""


def runs_in(request: Any) -> dict[RunName, str]:
    """Return the runs of `node_task_id` and `node_task_ids`, if they are valid, and of `flow_id`, `cycle` and `run`.

    Each comes with the id that named it. The run of a `task_id` is returned too if it names a node of a flow; for an
    ad-hoc task, the handler checks the owner itself. Raises InvalidInput for too many ids.
    """
    fields = set(request.DESCRIPTOR.fields_by_name)
    ids = [request.node_task_id] if "node_task_id" in fields else []
    if "task_id" in fields and not request.task_id.startswith(TASK):
        ids.append(request.task_id)
    if "node_task_ids" in fields:
        at_most("node_task_ids", request.node_task_ids, _MAX_IDS)
        ids += request.node_task_ids
    found: dict[RunName, str] = {}
    for task_id in ids:
        try:
            found.setdefault(TaskName.parse(task_id).run, task_id)
        except ValueError:
            # The handler says what is wrong with the id.
            continue
    if {"flow_id", "cycle", "run"} <= fields:
        run = RunName(request.flow_id, request.cycle, request.run)
        found.setdefault(run, str(run))
    return found
