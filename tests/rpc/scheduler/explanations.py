"""What the scheduler explains, by code, for the tests of explanations."""

from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.rpc.scheduler.conftest import Client, Peers
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import explanation_pb2

Reasons = dict[str, tuple[str, dict[str, Any]]]


def reasons_by_code(reasons: Any) -> Reasons:
    """Return sentences and facts by code, in order."""
    return {each.code: (each.sentence, MessageToDict(each.facts)) for each in reasons}


async def explain_flow(scheduler: Client) -> Reasons:
    return reasons_by_code((await scheduler.stub.ExplainFlow(explanation_pb2.ExplainFlowRequest(flow_id="f"))).reasons)


async def explain_node(scheduler: Client, node_id: str = "a", **where: int) -> Reasons:
    request = explanation_pb2.ExplainNodeRequest(flow_id="f", node_id=node_id, **where)
    return reasons_by_code((await scheduler.stub.ExplainNode(request)).reasons)


async def submitted(peers: Peers, cycle: int = 0) -> None:
    await until(lambda: ("f", cycle, 0) in peers.node_tasks.runs, "it was submitted")


def set_node_reasons(peers: Peers, *reasons: tuple[Any, ...]) -> None:
    """Let the node task manager explain node `a` of cycle 0 with these codes, sentences, and facts if any."""
    peers.node_tasks.explained["f:0:0:a"] = (
        node_task_pb2.NodeTask(node_id="a", node_type="noop", status=node_task_pb2.NODE_TASK_STATUS_PENDING),
        list(reasons),
    )
