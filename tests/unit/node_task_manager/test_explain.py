"""Explaining node tasks in states that last for a moment only."""

from types import SimpleNamespace
from typing import Any

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.explaining import Holders
from tradewind.node_task_manager.use_cases.explain import ExplainNodeTask
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.clock import ManualClock


class Blocked:
    """Stands for all that is read: a node task that waits for a limit, and who holds that."""

    def __init__(self, limit: str) -> None:
        task = NodeTask("flow:0:0:a", NodeTaskStatus.PENDING, "0", 0, blocked=limit)
        component = Component(RunName("flow", 0, 0), "r0", "0", ComponentStatus.RUNNING, "ann", "p", 1)
        self._seen = TaskView(task, component, Plan("p", (PlanNode("a", "noop"),), ()))

    async def node_task(self, _task_id: str, _user_id: str) -> TaskView:
        return self._seen

    def shard(self, _user_id: str) -> Any:
        return SimpleNamespace(number=0)

    async def holders(self, _limit: str, _most: int) -> Holders:
        return Holders(1, ("flow:0:0:b",))

    async def refusal(self) -> str:
        return ""


async def test_just_removed_limit_is_explained_as_removed() -> None:
    """A replica that has not heard of the change yet blocks a node task once more."""
    read: Any = Blocked("flow:flow")
    explain = ExplainNodeTask(
        read, {0: read}, lambda _shard: SystemConfig(), read, read.refusal, ManualClock(), Limits()
    )
    _, (reason,) = await explain("flow:0:0:a", "ann")
    assert (reason.code, reason.facts["most"]) == ("limit_full", 0)
    assert reason.sentence.endswith("; the limit has just been removed")
