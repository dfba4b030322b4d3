"""Explains in a sentence why each node of a cycle waits, from a page of node tasks alone."""

from collections import defaultdict
from collections.abc import Iterable

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTaskStatus, Signal, SignalStatus
from tradewind.server.reasons import waits_for_nodes, workers_busy


def explain_waits(page: ListNodeTasksResponse) -> None:
    """Add to each node task of a page that has not begun the reason why it waits, unless it has a reason already.

    The page must have signals. ExplainNode gives all the reasons of a single node.
    """
    undecided = _undecided(page.signals)
    for task in page.node_tasks:
        if task.status == NodeTaskStatus.NODE_TASK_STATUS_PENDING:
            task.reason = task.reason or workers_busy(task.node_type).sentence
        elif task.status == NodeTaskStatus.NODE_TASK_STATUS_REGISTERED and undecided.get(task.node_id):
            task.reason = task.reason or waits_for_nodes(undecided[task.node_id]).sentence


def _undecided(signals: Iterable[Signal]) -> dict[str, dict[str, str]]:
    """Return, by node, the sources whose signals are still undecided."""
    sources: dict[str, dict[str, str]] = defaultdict(dict)
    for signal in signals:
        if signal.status == SignalStatus.SIGNAL_STATUS_WAITING:
            sources[signal.target][signal.source] = ""
    return sources
