"""Why a node waits, in words."""

from collections.abc import Collection
from typing import Any

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus, Signal, SignalStatus
from tradewind.scheduler.use_cases.explain_waits import ExplainWaits

PENDING, REGISTERED = NodeTaskStatus.NODE_TASK_STATUS_PENDING, NodeTaskStatus.NODE_TASK_STATUS_REGISTERED


class Offered:
    """A catalogue in which a live worker offers these types; None when nobody can be asked."""

    def __init__(self, *types: str, away: bool = False) -> None:
        self.types = types
        self.away = away

    async def catalogue(self, node_types: Collection[str], *, hints: bool = False) -> Any:
        return None if self.away else self

    def declared(self, node_type: str) -> Any:
        return object() if node_type in self.types else None


async def reasons(offered: Offered, *tasks: NodeTask, signals: list[Signal] | None = None) -> list[str]:
    page = ListNodeTasksResponse(node_tasks=tasks, signals=signals or [])
    await ExplainWaits(offered)(page)
    return [task.reason for task in page.node_tasks]


async def test_a_type_that_nobody_offers_is_named() -> None:
    task = NodeTask(node_id="a", node_type="model", status=PENDING)
    assert await reasons(Offered("feed"), task) == ['no live worker offers node type "model"']


async def test_a_type_that_somebody_offers_waits_for_room() -> None:
    task = NodeTask(node_id="a", node_type="model", status=PENDING)
    words = ['waits for a worker that offers "model" to have room']
    assert await reasons(Offered("model"), task) == words
    assert await reasons(Offered(away=True), task) == words


async def test_a_node_waits_for_sources_that_are_not_decided() -> None:
    waiting = [
        Signal(source=source, target="z", status=SignalStatus.SIGNAL_STATUS_WAITING)
        for source in ("a", "b", "b", "c", "d")
    ]
    decided = [Signal(source="e", target="z", status=SignalStatus.SIGNAL_STATUS_LIVE)]
    task = NodeTask(node_id="z", status=REGISTERED)
    assert await reasons(Offered(), task, signals=waiting + decided) == ['waits for nodes "a", "b", "c" and 1 more']
    assert await reasons(Offered(), task, signals=waiting[:1]) == ['waits for node "a"']


async def test_nodes_that_do_not_wait_keep_what_they_have() -> None:
    done = NodeTask(node_id="a", reason="skipped by hand", status=NodeTaskStatus.NODE_TASK_STATUS_SKIPPED)
    assert await reasons(Offered(), done) == ["skipped by hand"]
