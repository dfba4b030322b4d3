"""Which runs a request names: the gate looks up their owners, so there must not be too many."""

import pytest

from tradewind.api.node_task_manager.v1 import batch_pb2, sub_flow_pb2
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.rpc.named_runs import runs_in
from tradewind.server.faults import InvalidInput


def request_for(count: int) -> sub_flow_pb2.ListSubFlowWaitsRequest:
    """Return a request for `count` node tasks, each of a run of its own."""
    ids = [f"flow:{cycle}:0:a" for cycle in range(count)]
    return sub_flow_pb2.ListSubFlowWaitsRequest(flow_id="flow", node_task_ids=ids)


def test_each_run_is_named_once() -> None:
    request = request_for(3)
    request.node_task_ids.append("no id")
    assert list(runs_in(request)) == [RunName("flow", cycle, 0) for cycle in range(3)]


def test_task_id_of_flow_node_names_its_run() -> None:
    assert runs_in(batch_pb2.WatchTaskRequest(task_id="flow:7:1:a:3")) == {RunName("flow", 7, 1): "flow:7:1:a:3"}
    assert runs_in(batch_pb2.WatchTaskRequest(task_id="task:t1")) == {}


def test_at_most_100_node_tasks_may_be_named() -> None:
    assert len(runs_in(request_for(100))) == 100
    with pytest.raises(InvalidInput) as caught:
        runs_in(request_for(101))
    assert [each.path for each in caught.value.violations] == ["node_task_ids"]
