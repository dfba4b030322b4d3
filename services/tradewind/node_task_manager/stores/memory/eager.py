"""Attempts that their worker began by itself, with what a node of its has just emitted, in memory."""

from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.task_event import TaskEventKind
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming
from tradewind.node_task_manager.stores.memory.replacing import replace


class MemoryEager(MemoryClaiming):
    """Begins them."""

    def _begin_eagerly(self, source: NodeTask, task: NodeTask, nonce: str) -> str:
        """Begin a ready node task that has had no attempt; returns why not, "" when it did."""
        node = self._node(task)
        if node.fan_out or node.wait:
            return "it is given to no worker"
        if task.stop or self._components[self._owner(task)].stop:
            return "it is to stop"
        if not self._feeds(source, task):
            return "it does not follow from what was said before"
        if self._config.bounded or self._own_limits(task):
            return "limits are set, so it waits for its turn"
        task = self._lease(replace(self._dequeue(task), status=NodeTaskStatus.RUNNING, attempt=1), source.worker_id)
        task = self._tasks[task.task_id] = replace(task, nonce=nonce)
        self._happened(task, TaskEventKind.RUNNING)
        if node.retry and node.retry.attempts > 1:
            self._budgets.begin(self._spender(task))
        return ""

    def _feeds(self, source: NodeTask, task: NodeTask) -> bool:
        """Say whether a node task gets all that it gets from another one, which has emitted it."""
        plan = self._plan(task)
        into = plan.inputs[task.index]
        if self._owner(source) != self._owner(task) or len(into) != 1:
            return False
        edge = plan.edges[into[0]]
        return edge.source == source.index and edge.source_handle in source.emitted
