"""JSON that is nested too deeply."""

import grpc

from tests.rpc.node_task_manager.conftest import Ntm
from tests.rpc.node_task_manager.test_ad_hoc import refused, submit_task
from tests.rpc.node_task_manager.test_calls import claim
from tradewind.api.node_task_manager.v1 import batch_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

DEEP = "[" * 501 + "]" * 501


async def test_too_deep_parameters_are_refused(ntm: Ntm) -> None:
    code, reason, paths = await refused(submit_task(ntm, parameters_json='{"x":' + DEEP + "}"))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert paths == ["parameters_json"]


async def test_too_deep_output_fails_only_its_node_task(ntm: Ntm) -> None:
    for _ in range(2):
        await submit_task(ntm)
    first, second = await claim(ntm)
    completions = [
        work_pb2.NodeTaskCompletion(token=task.token, outputs=[node_task_pb2.Output(handle="out", value_json=value)])
        for task, value in ((first, DEEP), (second, "1"))
    ]
    await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=completions))

    async def task(named: work_pb2.NodeTaskAssignment) -> node_task_pb2.NodeTask:
        request = batch_pb2.GetTaskRequest(task_id=named.node_task_id, user_id="ann")
        return (await ntm.stub.GetTask(request)).task

    assert (await task(first)).error.code == "INVALID_OUTPUT"
    assert (await task(second)).status == node_task_pb2.NODE_TASK_STATUS_COMPLETED
