"""Why nodes of a cycle wait, in words: a sentence for each, by what a page of them shows."""

from collections import defaultdict
from collections.abc import Iterable

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTaskStatus, Signal, SignalStatus
from tradewind.scheduler.ports.peers import NodeTypes
from tradewind.server.reasons import no_live_worker, waits_for_nodes, workers_busy


class ExplainWaits:
    """Fills in the reason of each node that has not begun: what it waits for. ExplainNode tells all of one."""

    def __init__(self, node_types: NodeTypes) -> None:
        self._node_types = node_types

    async def __call__(self, page: ListNodeTasksResponse) -> None:
        """Add reasons to a page of node tasks with their signals; those that have one keep it."""
        pending = [task for task in page.node_tasks if task.status == NodeTaskStatus.NODE_TASK_STATUS_PENDING]
        if pending:
            catalogue = await self._node_types.catalogue({task.node_type for task in pending})
            for task in pending:
                nobody = catalogue is not None and catalogue.declared(task.node_type) is None
                reason = no_live_worker(task.node_type) if nobody else workers_busy(task.node_type)
                task.reason = task.reason or reason.sentence
        undecided = _undecided(page.signals)
        for task in page.node_tasks:
            if task.status == NodeTaskStatus.NODE_TASK_STATUS_REGISTERED and undecided.get(task.node_id):
                task.reason = task.reason or waits_for_nodes(undecided[task.node_id]).sentence


def _undecided(signals: Iterable[Signal]) -> dict[str, dict[str, str]]:
    """Return, by node, the sources that are not decided yet."""
    sources: dict[str, dict[str, str]] = defaultdict(dict)
    for signal in signals:
        if signal.status == SignalStatus.SIGNAL_STATUS_WAITING:
            sources[signal.target][signal.source] = ""
    return sources
