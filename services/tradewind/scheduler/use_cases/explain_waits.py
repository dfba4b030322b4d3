"""Why nodes of a cycle wait, in words."""

from collections import defaultdict
from collections.abc import Iterable

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTaskStatus, Signal, SignalStatus
from tradewind.scheduler.ports import NodeTypes

_NAMED = 3


class ExplainWaits:
    """Fills in the reason of each node that has not begun: what it waits for."""

    def __init__(self, node_types: NodeTypes) -> None:
        self._node_types = node_types

    async def __call__(self, page: ListNodeTasksResponse) -> None:
        """Add reasons to a page of node tasks with their signals; those that have one keep it."""
        pending = [task for task in page.node_tasks if task.status == NodeTaskStatus.NODE_TASK_STATUS_PENDING]
        if pending:
            catalogue = await self._node_types.catalogue({task.node_type for task in pending})
            for task in pending:
                if catalogue is not None and catalogue.declared(task.node_type) is None:
                    task.reason = task.reason or f'no live worker offers node type "{task.node_type}"'
                else:
                    task.reason = task.reason or f'waits for a worker that offers "{task.node_type}" to have room'
        undecided = _undecided(page.signals)
        for task in page.node_tasks:
            if task.status == NodeTaskStatus.NODE_TASK_STATUS_REGISTERED and undecided.get(task.node_id):
                task.reason = task.reason or f"waits for {_named(undecided[task.node_id])}"


def _undecided(signals: Iterable[Signal]) -> dict[str, list[str]]:
    """Return, by node, the sources that are not decided yet."""
    sources: dict[str, list[str]] = defaultdict(list)
    for signal in signals:
        if signal.status == SignalStatus.SIGNAL_STATUS_WAITING and signal.source not in sources[signal.target]:
            sources[signal.target].append(signal.source)
    return sources


def _named(sources: list[str]) -> str:
    shown = ", ".join(f'"{source}"' for source in sources[:_NAMED])
    more = len(sources) - _NAMED
    return f"node{'s' if len(sources) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")
