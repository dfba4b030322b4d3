"""What node tasks say of themselves, and how they fail, in tests of explanations."""

from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tradewind.api.node_task_manager.v1 import explanation_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2

Explanation = tuple[str, str, dict[str, Any]]
CHAIN = plan(("a", "out", "b", "in"), nodes="a")


async def explained(ntm: Ntm, name: str = "a", flow_id: str = "flow", node_id: str = "") -> list[Explanation]:
    """Return the codes, sentences and facts of a node, or of an item of `node_id`."""
    request = explanation_pb2.ExplainNodeTaskRequest(node_task_id=f"{flow_id}:0:0:{name}", user_id="default")
    response = await ntm.stub.ExplainNodeTask(request)
    assert response.node_task.node_id == (node_id or name)
    return [(each.code, each.sentence, MessageToDict(each.facts)) for each in response.reasons]


def codes(explanations: list[Explanation]) -> list[str]:
    return [code for code, _, _ in explanations]


async def fail(ntm: Ntm, token: str) -> None:
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", type="KeyError", message="'luck'")
    failure = work_pb2.NodeTaskFailure(token=token, error=error)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
