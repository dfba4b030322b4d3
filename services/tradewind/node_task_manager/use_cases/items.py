"""Reading the items of mapped nodes; items that have not begun have no record, so they are made up."""

from collections.abc import Sequence

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.ports.reading import NodeTaskReader


async def read_items(
    reader: NodeTaskReader, owner: NodeTask | None, node: PlanNode, items: Sequence[int], *, outputs: bool = False
) -> list[tuple[NodeTask, str]]:
    """Return items of the mapped `node`, each with what it waits for; items that its list does not have are left out.

    `owner` is the node's own node task, None when nothing has reached it yet.
    """
    if owner is None or owner.items is None:
        return []
    existing = [item for item in items if item < owner.items.total]
    found = await reader.tasks([f"{owner.task_id}:{item}" for item in existing], outputs=outputs)
    most = node.fan_out.max_parallel if node.fan_out else 0
    return [
        (task, "") if task is not None else _not_begun(owner, item, most)
        for item, task in zip(existing, found, strict=True)
    ]


def _not_begun(owner: NodeTask, item: int, most: int) -> tuple[NodeTask, str]:
    ended = owner.status.terminal
    task = NodeTask(
        task_id=f"{owner.task_id}:{item}",
        status=NodeTaskStatus.SKIPPED if ended else NodeTaskStatus.REGISTERED,
        component_id=owner.component_id,
        index=owner.index,
        reason="the node ended before this item began" if ended else "",
        stop=owner.stop,
        registered_at=owner.started_at,
        ended_at=owner.ended_at,
    )
    return task, "" if ended else f"waits until fewer than {most} of the earlier items are open"
