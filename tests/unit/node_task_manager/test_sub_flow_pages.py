"""Pages of a run's node tasks that wait for cycles: each page reads only its own contents, not what comes before."""

from collections.abc import Sequence
from typing import cast

import pytest

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.fan_out import FanOut
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan, PlanNode
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.sub_flows import SubFlows

RUN = RunName("flow", 0, 0)
WAIT = Wait(flow_id="other")
MAPPED = FanOut("list")
PLANS = [
    Plan("one", (PlanNode("a", "flow", wait=WAIT), PlanNode("b", "noop"), PlanNode("c", "flow", wait=WAIT)), ()),
    Plan(
        "two",
        (
            PlanNode("m", "flow", wait=WAIT, fan_out=MAPPED),
            PlanNode("d", "flow", wait=WAIT),
            PlanNode("not-yet", "flow", wait=WAIT, fan_out=MAPPED),
            PlanNode("n", "flow", wait=WAIT, fan_out=MAPPED),
        ),
        (),
    ),
]
TOTALS = {"flow:0:0:m": 1203, "flow:0:0:n": 3}
PLACES = [
    *("flow:0:0:a", "flow:0:0:c", "flow:0:0:d"),
    *(f"{owner}:{item}" for owner, total in TOTALS.items() for item in range(total)),
]
"""All waiting node tasks, in the order of their places."""


class Kept:
    """Stands in for NodeTaskRecords and its shard's reader: has all node tasks of a run, and records what is read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.reader = self

    def shard(self, user_id: str) -> "Kept":
        return self

    async def plans_of(self, run: RunName, user_id: str) -> list[tuple[Component, Plan]]:
        return [
            (Component(run, "r0", plan.digest, ComponentStatus.RUNNING, user_id, plan.digest, len(plan.nodes)), plan)
            for plan in PLANS
        ]

    async def tasks(self, ids: Sequence[str], *, inputs: bool = False, outputs: bool = False) -> list[NodeTask | None]:
        self.read += ids
        return [self._task(task_id) for task_id in ids]

    def _task(self, task_id: str) -> NodeTask | None:
        if task_id in TOTALS:
            return NodeTask(task_id, NodeTaskStatus.RUNNING, "two", 0, items=ItemCounts(TOTALS[task_id], 0))
        return NodeTask(task_id, NodeTaskStatus.SUSPENDED, "one", 0, wait=WAIT) if task_id in PLACES else None


@pytest.mark.parametrize("limit", [1, 2, 3, 500, 1204, 10_000])
async def test_pages_of_any_size_list_each_wait_once_in_order(limit: int) -> None:
    kept = Kept()
    sub_flows = SubFlows({}, cast(NodeTaskRecords, kept))
    after = 0 if limit > 3 else len(PLACES) - 10
    found, wanted = [], PLACES[after:]
    while True:
        page, after = await sub_flows.waits(RUN, "ada", after, limit)
        assert len(page) <= limit
        found += [wait.task.task_id for wait in page]
        if not after:
            break
    assert found == wanted


async def test_later_page_does_not_read_earlier_waits() -> None:
    kept = Kept()
    page, _ = await SubFlows({}, cast(NodeTaskRecords, kept)).waits(RUN, "ada", len(PLACES) - 4, 2)
    assert [wait.task.task_id for wait in page] == ["flow:0:0:m:1202", "flow:0:0:n:0"]
    owners = ["flow:0:0:m", "flow:0:0:not-yet", "flow:0:0:n"]
    assert kept.read == [*owners, "flow:0:0:m:1202", *(f"flow:0:0:n:{item}" for item in range(3))]
