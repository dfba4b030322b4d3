"""A user's queue is bounded: requests beyond the bound are refused as a whole, with a time to retry after."""

from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.rpc.node_task_manager.test_ad_hoc import submit_batch, submit_task
from tests.rpc.node_task_manager.test_calls import claim, reason_of
from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.node_task_manager.settings import NodeTaskManagerSettings


async def retry_delay_s(call: Any) -> float:
    """Return after how many seconds a call that is refused because the queue is full may be retried."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    status, info = rpc_status.from_call(caught.value), error_details_pb2.RetryInfo()  # type: ignore[arg-type]
    assert any(detail.Unpack(info) for detail in status.details)
    return info.retry_delay.ToTimedelta().total_seconds()


@pytest.fixture
async def ntm(start: Start, monkeypatch: pytest.MonkeyPatch) -> Ntm:
    """A node task manager that queues up to three node tasks per user."""
    limits = NodeTaskManagerSettings.limits
    monkeypatch.setattr(NodeTaskManagerSettings, "limits", lambda settings: replace(limits(settings), user_queue=3))
    return await start()


async def test_requests_beyond_the_queue_bound_are_refused_as_a_whole(ntm: Ntm) -> None:
    kept = (await submit_task(ntm)).task.node_task_id
    assert await retry_delay_s(submit_batch(ntm, ["{}"] * 3)) > 0
    await submit_task(ntm), await submit_task(ntm)
    assert await retry_delay_s(submit_task(ntm)) > 0
    refused = await ntm.submit(plan(nodes="a"), user_id="ann")
    assert (refused.outcome, refused.reason) == (component_pb2.SUBMIT_OUTCOME_REFUSED, "QUEUE_FULL")
    assert refused.retry_delay.ToTimedelta().total_seconds() > 0

    listed = await ntm.stub.ListTasks(pb2.ListTasksRequest(user_id="ann"))
    batches = await ntm.stub.ListBatches(pb2.ListBatchesRequest(user_id="ann"))
    assert (len(listed.tasks), len(batches.batches)) == (3, 0)
    assert kept in {task.node_task_id for task in listed.tasks}
    # Another user has room of their own; this user has room again once something has left the queue.
    await submit_task(ntm, user_id="bob")
    assert len(await claim(ntm, 4)) == 4
    assert (await submit_batch(ntm, ["{}"] * 3)).batch.progress.total == 3


async def test_refused_run_is_accepted_once_there_is_room(ntm: Ntm) -> None:
    await submit_batch(ntm, ["{}"] * 3)
    assert (await ntm.submit(plan(nodes="a"), user_id="ann")).outcome == component_pb2.SUBMIT_OUTCOME_REFUSED
    await claim(ntm, 3)
    assert (await ntm.submit(plan(nodes="a"), user_id="ann")).outcome == component_pb2.SUBMIT_OUTCOME_ACCEPTED
