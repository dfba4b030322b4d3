"""Explaining node tasks in states that last for a moment only."""

from types import SimpleNamespace
from typing import Any

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.fan_out import FanOut
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.ports.connected import LastOffer
from tradewind.node_task_manager.ports.reading import Holders, Place
from tradewind.node_task_manager.use_cases.explain import ExplainNodeTask
from tradewind.node_task_manager.use_cases.task_views import TaskView
from tradewind.server.clock import ManualClock
from tradewind.server.faults import NotFound
from tradewind.server.rates import Rate

NO_LIMITS = SystemConfig()


def seen(node: PlanNode, task_id: str, **fields: Any) -> TaskView:
    """Return a pending node task as it is read; its component has only this node."""
    component = Component(RunName("flow", 0, 0), "r0", "0", ComponentStatus.RUNNING, "ann", "p", 1)
    return TaskView(NodeTask(task_id, NodeTaskStatus.PENDING, "0", 0, **fields), component, Plan("p", (node,), ()))


class Records:
    """Stands for all that is read: node tasks that wait, and who holds the limits."""

    def __init__(self, *tasks: TaskView) -> None:
        self.tasks = {each.task.task_id: each for each in tasks}
        self.offers = True
        self.once_read = list[TaskView]()
        """What is there after the next read."""

    async def node_task(self, task_id: str, _user_id: str) -> TaskView:
        found = self.tasks.get(task_id)
        self.tasks.update((each.task.task_id, each) for each in self.once_read)
        if found is None:
            raise NotFound("node task", task_id)
        return found

    def shard(self, _user_id: str) -> Any:
        return SimpleNamespace(number=0, queues=self)

    async def holders(self, _limit: str, _most: int) -> Holders:
        return Holders(1, ("flow:0:0:b",))

    async def held(self, _limits: list[str]) -> list[int]:
        return [3_600_000_000]

    async def place(self, *_: str) -> Place:
        return Place(0, 1, 0)

    async def unoffered(self, node_types: list[str]) -> dict[str, LastOffer]:
        return {} if self.offers else {each: LastOffer("", 0) for each in node_types}

    async def refusal(self) -> str:
        return ""


def explaining(records: Any, config: SystemConfig = NO_LIMITS, shards: int = 1) -> ExplainNodeTask:
    return ExplainNodeTask(
        records,
        lambda shard: config.share(shard, shards),
        lambda: config,
        records,
        records.refusal,
        ManualClock(),
        Limits(),
    )


async def test_just_removed_limit_is_explained_as_removed() -> None:
    """A replica that has not heard of the change yet blocks a node task once more."""
    explain = explaining(Records(seen(PlanNode("a", "noop"), "flow:0:0:a", blocked="flow:flow")))
    _, (reason,) = await explain("flow:0:0:a", "ann")
    assert (reason.code, reason.facts["most"]) == ("limit_full", 0)
    assert reason.sentence.endswith("; the limit has just been removed")


async def test_limit_that_is_full_does_not_hide_that_nobody_would_run_it() -> None:
    records = Records(seen(PlanNode("a", "noop"), "flow:0:0:a", blocked="flow:flow"))
    explain = explaining(records)
    assert [each.code for each in (await explain("flow:0:0:a", "ann"))[1]] == ["limit_full"]
    records.offers = False
    assert [each.code for each in (await explain("flow:0:0:a", "ann"))[1]] == ["no_live_worker", "limit_full"]


async def test_item_is_explained_while_its_list_is_being_split() -> None:
    node = PlanNode("a", "noop", fan_out=FanOut("in"))
    records = Records(seen(node, "flow:0:0:a"))
    records.once_read = [
        seen(node, "flow:0:0:a", items=ItemCounts(1, 1, begun=1)),
        seen(node, "flow:0:0:a:0", retry_at=7),
    ]
    explain = explaining(records)
    assert [(await explain("flow:0:0:a:0", "ann"))[1][0].code for _ in range(2)] == ["items_open", "retry_at"]


async def test_share_of_a_shard_is_not_mistaken_for_the_limit() -> None:
    config = SystemConfig(max_running_per_node_type={"noop": 4}, rates={"noop": Rate(8, 3_600_000)})
    explain = explaining(Records(seen(PlanNode("a", "noop"), "flow:0:0:a")), config, shards=4)
    found = {each.code: each for each in (await explain("flow:0:0:a", "ann"))[1]}
    full, rate = found["limit_full"], found["rate_limited"]
    assert [full.facts[name] for name in ("held", "most", "total")] == [1, 1, 4]
    assert full.sentence.endswith("is reached (1 of 1; this shard has a share of the 4 of all shards)")
    assert (rate.facts["rate"], rate.facts["total"]) == ("2/h", "8/h")
    assert rate.sentence.endswith("; this shard has a share of the 8/h of all shards")
