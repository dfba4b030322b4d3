"""Limits that ad-hoc tasks and batches bring with them."""

import time
from collections.abc import Callable

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker
from tests.rpc.node_task_manager.test_ad_hoc import get_batch, numbers, submit_batch, submit_task
from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2

MakeWorker = Callable[..., RawWorker]
PENDING = node_task_pb2.NODE_TASK_STATUS_PENDING


async def test_concurrency_key_limits_batch_items(ntm: Ntm, worker: MakeWorker) -> None:
    options = pb2.TaskOptions(concurrency=node_task_pb2.Concurrency(key="acct-7", max=2))
    batch = (await submit_batch(ntm, ["{}"] * 5, options=options)).batch
    other = (await submit_task(ntm, options=options)).task
    one = worker("w1")
    await one.open()
    for ended in range(6):
        await one.assigned(min(6, ended + 2))
        progress = (await get_batch(ntm, batch.batch_id)).batch.progress
        assert progress.running <= 2
        await one.complete(one.assignments[ended].token)
    assert numbers((await get_batch(ntm, batch.batch_id)).batch.progress) == (0, 0, 5, 0, 0)
    assert {each.node_task_id for each in one.assignments} >= {other.node_task_id}


async def test_rate_key_paces_tasks_and_is_reported_as_reason(ntm: Ntm, worker: MakeWorker) -> None:
    options = pb2.TaskOptions(rate=node_task_pb2.KeyRate(key="acct-7", limit="4/s", cost=2))
    tasks = [(await submit_task(ntm, options=options)).task for _ in range(5)]
    one = worker("w1")
    began = time.monotonic()
    await one.open()
    await one.assigned(2)
    request = pb2.GetTaskRequest(task_id=tasks[4].node_task_id, user_id="ann")
    waiting = (await ntm.stub.GetTask(request)).task
    assert waiting.status != PENDING or waiting.reason == ('waits: the rate limit of key "acct-7" is reached')
    await one.assigned(5)
    # Two at once, and one more every half second.
    assert time.monotonic() - began > 1.4


async def test_reused_request_id_with_another_limit_is_refused(ntm: Ntm) -> None:
    options = pb2.TaskOptions(rate=node_task_pb2.KeyRate(key="k", limit="4/s"))
    await submit_task(ntm, request_id="once", options=options)
    assert (await submit_task(ntm, request_id="once", options=options)).duplicate
    options.rate.cost = 2
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await submit_task(ntm, request_id="once", options=options)
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
