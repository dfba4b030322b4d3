"""ExplainNodeTask for nodes over a list, and for their items."""

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tests.rpc.node_task_manager.explanations import codes, explained, fail
from tests.rpc.node_task_manager.test_calls import claim
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2


def mapped(max_parallel: int = 0) -> component_pb2.Plan:
    """Return a plan with a node `a`, and one that runs once for each item of the list that `a` emits."""
    made = plan(("a", "out", "m", "in"), digest=f"mapped{max_parallel}")
    made.nodes[1].fan_out.CopyFrom(component_pb2.FanOut(handle="in", max_parallel=max_parallel))
    return made


async def emit(ntm: Ntm, token: str, list_json: str) -> None:
    done = work_pb2.NodeTaskCompletion(token=token, outputs=[{"handle": "out", "value_json": list_json}])  # type: ignore[list-item]
    await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done]))


async def until_explained(ntm: Ntm, item: str, code: str) -> None:
    async def is_explained() -> bool:
        return code in codes(await explained(ntm, item, node_id="m"))

    await until(is_explained, f"{item} tells {code}")


async def test_mapped_node_is_explained_by_its_open_items(ntm: Ntm) -> None:
    await ntm.submit(mapped())
    (given,) = await claim(ntm)
    await emit(ntm, given.token, "[1,2,3]")

    async def split() -> bool:
        ((code, _, facts),) = await explained(ntm, "m")
        return code == "items_open" and facts == {"total": 3, "begun": 3, "ended": 0}

    await until(split, "its list is split")


async def test_items_are_explained_like_other_node_tasks(ntm: Ntm) -> None:
    await ntm.submit(mapped(max_parallel=1))
    (given,) = await claim(ntm)
    # There are no items yet; they wait for the same reason as their node.
    ((code, text, _),) = await explained(ntm, "m:0", node_id="m")
    assert (code, text) == ("waits_for_node", 'waits for node "a", which is running')
    await emit(ntm, given.token, "[1,2]")
    await until_explained(ntm, "m:1", "waits_for_items")
    ((_, text, facts),) = await explained(ntm, "m:1", node_id="m")
    assert text == "waits until fewer than 1 of the earlier items are open"
    assert facts == {"max_parallel": 1}
    await until_explained(ntm, "m:0", "queued")
    (given,) = await claim(ntm)
    assert codes(await explained(ntm, "m:0", node_id="m")) == ["running"]
    await fail(ntm, given.token)
    assert codes(await explained(ntm, "m:0", node_id="m")) == ["failed"]
    for absent in ("m:2", "a:0"):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await explained(ntm, absent)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_item_of_an_empty_list_does_not_exist(ntm: Ntm) -> None:
    await ntm.submit(mapped())
    (given,) = await claim(ntm)
    await emit(ntm, given.token, "[]")
    await until_explained(ntm, "m", "completed")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await explained(ntm, "m:0", node_id="m")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    node = await ntm.node("m")
    assert (node.HasField("items"), node.items.total) == (True, 0)


async def test_item_not_begun_is_explained_by_its_stopping_node(ntm: Ntm) -> None:
    await ntm.submit(mapped(max_parallel=1))
    (given,) = await claim(ntm)
    await emit(ntm, given.token, "[1,2]")
    await until_explained(ntm, "m:0", "queued")
    await claim(ntm)
    request = pb2.TerminateNodeTaskRequest(node_task_id="flow:0:0:m", user_id="default", reason="enough", by="ann")
    await ntm.stub.TerminateNodeTask(request)
    code, _, facts = (await explained(ntm, "m:1", node_id="m"))[0]
    assert (code, facts["by"], facts["why"]) == ("stopping", "ann", "enough")
