"""Which runs a request names by the ids of node tasks or of a cycle."""

from typing import Any

from tradewind.node_task_manager.domain.names import TASK, RunName, TaskName
from tradewind.node_task_manager.rpc.checks import at_most

_MOST_IDS = 100
"""No handler takes more; each may be of another run, which the gate reads before the handler counts them."""


def runs_in(request: Any) -> list[RunName]:
    """Return the runs of `node_task_id` and `node_task_ids`, if they are ids, and of `flow_id`, `cycle` and `run`.

    That of a `task_id` as well where it names a node of a flow: whose an ad-hoc task is, its handler looks at itself.
    Raises InvalidInput for too many ids.
    """
    fields = set(request.DESCRIPTOR.fields_by_name)
    ids = [request.node_task_id] if "node_task_id" in fields else []
    if "task_id" in fields and not request.task_id.startswith(TASK):
        ids.append(request.task_id)
    if "node_task_ids" in fields:
        at_most("node_task_ids", request.node_task_ids, _MOST_IDS)
        ids += request.node_task_ids
    found = []
    for task_id in ids:
        try:
            found.append(TaskName.parse(task_id).run)
        except ValueError:
            # The handler says what is wrong with it.
            continue
    if {"flow_id", "cycle", "run"} <= fields:
        found.append(RunName(request.flow_id, request.cycle, request.run))
    return list(dict.fromkeys(found))
