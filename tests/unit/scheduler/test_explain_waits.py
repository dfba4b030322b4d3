"""Why a node waits, in words."""

from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2 import ListNodeTasksResponse
from tradewind.api.node_task_manager.v1.node_task_pb2 import NodeTask, NodeTaskStatus, Signal, SignalStatus
from tradewind.scheduler.use_cases.explain_waits import explain_waits

PENDING, REGISTERED = NodeTaskStatus.NODE_TASK_STATUS_PENDING, NodeTaskStatus.NODE_TASK_STATUS_REGISTERED


def reasons(*tasks: NodeTask, signals: list[Signal] | None = None) -> list[str]:
    page = ListNodeTasksResponse(node_tasks=tasks, signals=signals or [])
    explain_waits(page)
    return [task.reason for task in page.node_tasks]


def test_what_is_pending_for_no_other_reason_waits_for_room() -> None:
    task = NodeTask(node_id="a", node_type="model", status=PENDING)
    assert reasons(task) == ['waits for a worker that offers "model" to have room']
    task.reason = 'no live worker offers node type "model"'
    assert reasons(task) == [task.reason]


def test_a_node_waits_for_sources_that_are_not_decided() -> None:
    waiting = [
        Signal(source=source, target="z", status=SignalStatus.SIGNAL_STATUS_WAITING)
        for source in ("a", "b", "b", "c", "d")
    ]
    decided = [Signal(source="e", target="z", status=SignalStatus.SIGNAL_STATUS_LIVE)]
    task = NodeTask(node_id="z", status=REGISTERED)
    assert reasons(task, signals=waiting + decided) == ['waits for nodes "a", "b", "c" and 1 more']
    assert reasons(task, signals=waiting[:1]) == ['waits for node "a"']


def test_nodes_that_do_not_wait_keep_what_they_have() -> None:
    done = NodeTask(node_id="a", reason="skipped by hand", status=NodeTaskStatus.NODE_TASK_STATUS_SKIPPED)
    assert reasons(done) == ["skipped by hand"]
