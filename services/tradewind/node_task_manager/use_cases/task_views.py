"""Node tasks and signals as they are shown."""

from dataclasses import dataclass
from enum import StrEnum

from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.domain.sub_flow import sub_flow_wait_text
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.server.reasons import iso


@dataclass(frozen=True, slots=True)
class TaskView:
    """A node task with its component and plan; `task` is made up for a node that nothing has reached yet.

    Of the plan of a large batch, only the part with its node may be here.
    """

    task: NodeTask
    component: Component
    plan: Plan
    wait_reason: str = ""
    """What outside of it keeps it waiting, in words."""

    @property
    def node(self) -> PlanNode:
        """The node in the plan."""
        return self.plan.node(self.task.index)

    @property
    def is_mapped(self) -> bool:
        """Whether this is a mapped node's own node task, which no worker gets."""
        return self.node.fan_out is not None and TaskName.parse(self.task.task_id).item < 0

    @property
    def items(self) -> ItemCounts | None:
        """The counts of a mapped node's items, once its list is split; an empty list completes it without counts."""
        if self.task.items is None and self.is_mapped and self.task.status is NodeTaskStatus.COMPLETED:
            return ItemCounts(0, 0)
        return self.task.items

    @property
    def reason(self) -> str:
        """Why it waits or ended, in words; "" when there is nothing to say."""
        return self.task.reason or self._delay_reason() or self.wait_reason

    def size(self, *, config: bool = False) -> int:
        """Return its approximate size in an answer (bytes), with its config or without."""
        task = self.task
        texts = [task.reason, task.message, *(value for _, value in task.outputs)]
        if task.error is not None:
            texts += task.error.message, task.error.traceback
        if task.wait is not None:
            texts.append(task.wait.form)
        if task.resumed is not None:
            texts.append(task.resumed.payload)
        if config:
            texts.append(self.node.config_json)
        return 500 + sum(len(text.encode()) for text in texts)

    def _delay_reason(self) -> str:
        """Say that it waits for an answer, its next attempt, another's outputs or its items; else ""."""
        task, node = self.task, self.node
        if task.wait is not None:
            return _suspension_reason(task.wait, task.child)
        if task.waits_for_same_work:
            return "waits for another node task that does the same work; its cached outputs will be used"
        if self.is_mapped and node.fan_out is not None and task.status is NodeTaskStatus.PENDING:
            return f'the list at its input "{node.fan_out.handle}" is being split into items'
        if not task.retry_at or task.error is None or node.retry is None:
            return ""
        error = f"{task.error.type or task.error.code}: {task.error.message}".partition("\n")[0][:200]
        attempt = f"attempt {task.failures + 1} of {node.retry.attempts}"
        return f"{attempt} begins at {iso(task.retry_at)}; the last one failed: {error}"


def _suspension_reason(wait: Wait, child: str) -> str:
    if wait.flow_id:
        return sub_flow_wait_text(wait.flow_id, child)
    until = iso(wait.till)
    if not wait.signal:
        return f"waits until {until}"
    awaited = f'an answer: "{wait.title}"' if wait.form else f'signal "{wait.signal}"'
    return f"waits for {awaited}" + (f", until {until}" if until else "")


class SignalStatus(StrEnum):
    """Whether the value of an edge is there."""

    WAITING = "waiting"
    LIVE = "live"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class SignalView:
    """The signal along an edge between two nodes, named by their ids."""

    source: str
    target: str
    edge: PlanEdge
    status: SignalStatus
