"""Reports of a called worker by ReportNodeTasks: each takes effect, or is refused by name."""

from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.called_workers.workers import (
    COMPLETED,
    PENDING,
    RUNNING,
    Make,
    Registry,
    Status,
    give_a,
    until_node,
)
from tests.rpc.node_task_manager.conftest import Ntm, plan
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import work_pb2


async def test_all_parts_of_one_report_take_effect(ntm: Ntm, registry: Registry, make: Make) -> None:
    worker = await make("w1", capacity=4)
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a b c d"))
    tokens = {each.node_id: each.token for each in await worker.has(4)}
    await registry.list()
    request = pb2.ReportNodeTasksRequest(
        worker_id="w1",
        completions=[work_pb2.NodeTaskCompletion(token=tokens["a"])],
        failures=[work_pb2.NodeTaskFailure(token=tokens["b"], error={"message": "broke"})],  # type: ignore[arg-type]
        give_back_tokens=[tokens["c"]],
        held_tokens=[tokens["d"]],
        progress=[work_pb2.NodeTaskProgress(token=tokens["d"], progress=40)],
        logs=[work_pb2.NodeTaskLog(token=tokens["d"], level="INFO", message="so far")],
    )
    for _ in range(2):
        # Reporting it again is fine.
        assert not (await ntm.stub.ReportNodeTasks(request)).losses
    await until_node(ntm, "a", COMPLETED)
    assert (await ntm.node("b")).error.message == "broke"
    assert (await ntm.node("c")).status == PENDING
    await until_node(ntm, "d", RUNNING, progress=40)

    request = pb2.ReportNodeTasksRequest(worker_id="w1", completions=[work_pb2.NodeTaskCompletion(token=tokens["c"])])
    (loss,) = (await ntm.stub.ReportNodeTasks(request)).losses
    assert loss.token == tokens["c"]


async def test_node_task_that_a_worker_gives_back_goes_to_another(ntm: Ntm, registry: Registry, make: Make) -> None:
    leaving = await make("w1")
    a = await give_a(ntm, registry, leaving)
    heir = await make("w2")
    await registry.list(leaving.listed(), heir.listed())
    await ntm.stub.ReportNodeTasks(pb2.ReportNodeTasksRequest(worker_id="w1", give_back_tokens=[a.token]))

    (again,) = await heir.has(1)
    assert (again.node_id, again.attempt, len(leaving.calls)) == ("a", 2, 1)


async def test_unknown_tokens_are_losses_and_do_not_block_other_reports(
    ntm: Ntm, registry: Registry, make: Make
) -> None:
    """Anyone who reaches a worker may have handed it anything, so an unknown lease must not block other reports."""
    worker = await make("w1")
    a = await give_a(ntm, registry, worker)
    names = ["rubbish", "", "9~flow:0:0:a~1~n", f"0~flow:0:0:a~{1 << 70}~n"]
    request = pb2.ReportNodeTasksRequest(
        worker_id="w1",
        completions=[work_pb2.NodeTaskCompletion(token=token) for token in (names[0], a.token, names[2])],
        failures=[work_pb2.NodeTaskFailure(token=names[1])],
        give_back_tokens=[names[1]],
        held_tokens=names,
        progress=[work_pb2.NodeTaskProgress(token=names[3], progress=40)],
        logs=[work_pb2.NodeTaskLog(token=names[0], level="INFO", message="so far")],
    )
    answer = await ntm.stub.ReportNodeTasks(request)
    assert sorted(loss.token for loss in answer.losses) == sorted(names)
    await until_node(ntm, "a", COMPLETED)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"worker_id": "no worker"}, "worker_id"),
        ({"logs": [work_pb2.NodeTaskLog()] * 1001}, "logs"),
    ],
)
async def test_bad_reports_are_refused(ntm: Ntm, fields: dict[str, Any], path: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ntm.stub.ReportNodeTasks(pb2.ReportNodeTasksRequest(**{"worker_id": "w1", **fields}))
    assert refused.value.code() is Status.INVALID_ARGUMENT
    assert refused.value.details().startswith(f"{path}: ")  # type: ignore[union-attr]
