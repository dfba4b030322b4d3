"""Finds the nodes of a run that did not succeed, and describes their failures."""

from collections.abc import Collection

from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.ports.peers import NodeTasks
from tradewind.server.quoting import quoted

FAILED = (NodeTaskStatus.NODE_TASK_STATUS_FAILED,)
_LONGEST = 1000


async def failed_nodes(
    node_tasks: NodeTasks, state: ChainState, most: int, statuses: Collection[NodeTaskStatus.ValueType] = FAILED
) -> list[NodeTask]:
    """Return up to `most` nodes of a run that are in one of these statuses. Raises PeerUnavailable."""
    found: list[NodeTask] = []
    token = ""
    while len(found) < most:
        page = await node_tasks.node_tasks(state, page_token=token)
        found += [task for task in page.node_tasks if task.status in statuses]
        token = page.next_page_token
        if not token:
            break
    return found[:most]


def failure_text(task: NodeTask) -> str:
    """Return which node failed, with up to 1000 characters of the error, and why it was not tried again."""
    error = task.error
    parts = (error.code, error.type, error.message[:_LONGEST])
    text = f"node {quoted(task.node_id)}: {': '.join(filter(None, parts))}"
    return f"{text}, not tried again: {error.final_reason}" if error.final_reason else text
