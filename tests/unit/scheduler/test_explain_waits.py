"""Why a node waits, in words."""

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus, Signal, SignalStatus
from tradewind.scheduler.use_cases.explain_waits import explain_waits

PENDING, REGISTERED = NodeTaskStatus.NODE_TASK_STATUS_PENDING, NodeTaskStatus.NODE_TASK_STATUS_REGISTERED


def reasons(*tasks: NodeTask, signals: list[Signal] | None = None) -> list[str]:
    page = ListNodeTasksResponse(node_tasks=tasks, signals=signals or [])
    explain_waits(page)
    return [task.reason for task in page.node_tasks]


def test_pending_node_without_other_reason_waits_for_a_free_worker() -> None:
    task = NodeTask(node_id="a", node_type="model", status=PENDING)
    assert reasons(task) == ['waits for a worker that offers "model" to have room']
    task.reason = 'no live worker offers node type "model"'
    assert reasons(task) == [task.reason]


def test_registered_node_waits_for_undecided_sources() -> None:
    waiting = [
        Signal(source=source, target="z", status=SignalStatus.SIGNAL_STATUS_WAITING)
        for source in ("a", "b", "b", "c", "d")
    ]
    decided = [Signal(source="e", target="z", status=SignalStatus.SIGNAL_STATUS_LIVE)]
    task = NodeTask(node_id="z", status=REGISTERED)
    assert reasons(task, signals=waiting + decided) == ['waits for nodes "a", "b", "c" and 1 more']
    assert reasons(task, signals=waiting[:1]) == ['waits for node "a"']


def test_node_that_does_not_wait_keeps_its_reason() -> None:
    done = NodeTask(node_id="a", reason="skipped by hand", status=NodeTaskStatus.NODE_TASK_STATUS_SKIPPED)
    assert reasons(done) == ["skipped by hand"]
