"""Refusals of ad-hoc tasks and batches: invalid requests, with every fault, and those of other users."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm
from tests.rpc.node_task_manager.test_ad_hoc import get_batch, refused, submit_batch, submit_task
from tests.rpc.node_task_manager.test_calls import claim
from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_pb2 import NODE_TASK_STATUS_FAILED

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def nothing_listed(ntm: Ntm, user_id: str) -> bool:
    """Tell whether nothing of a user is listed."""
    tasks = await ntm.stub.ListTasks(pb2.ListTasksRequest(user_id=user_id))
    batches = await ntm.stub.ListBatches(pb2.ListBatchesRequest(user_id=user_id))
    return not tasks.tasks and not batches.batches


async def test_users_see_only_their_own_tasks_and_batches(ntm: Ntm) -> None:
    task_id = (await submit_task(ntm)).task.node_task_id
    batch_id = (await submit_batch(ntm, ["{}"])).batch.batch_id
    calls: list[Any] = [
        ntm.stub.GetTask(pb2.GetTaskRequest(task_id=task_id, user_id="bob")),
        ntm.stub.CancelTask(pb2.CancelTaskRequest(task_id=task_id, user_id="bob")),
        ntm.stub.ListTaskLogs(pb2.ListTaskLogsRequest(task_id=task_id, user_id="bob")),
    ]
    for call in calls:
        assert await refused(call) == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND", [])
    calls = [
        get_batch(ntm, batch_id, "bob"),
        ntm.stub.CancelBatch(pb2.CancelBatchRequest(batch_id=batch_id, user_id="bob")),
        ntm.stub.DeleteBatch(pb2.DeleteBatchRequest(batch_id=batch_id, user_id="bob")),
        ntm.stub.ListBatchResults(pb2.ListBatchResultsRequest(batch_id=batch_id, user_id="bob")),
    ]
    for call in calls:
        assert await refused(call) == (grpc.StatusCode.NOT_FOUND, "BATCH_NOT_FOUND", [])
    assert len(await claim(ntm)) == 2


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"parameters_json": "[1]"}, ["parameters_json"]),
        ({"parameters_json": "{"}, ["parameters_json"]),
        ({"parameters_json": '{"x":"' + "y" * 256 * 1024 + '"}'}, ["parameters_json"]),
        ({"node_type": "a b", "user_id": ""}, ["user_id", "node_type"]),
        ({"request_id": "r" * 129}, ["request_id"]),
        ({"options": {"start_to_close": {"seconds": -1}}}, ["options.start_to_close"]),
        ({"options": {"heartbeat_timeout": {"nanos": 5_000_000}}}, ["options.heartbeat_timeout"]),
        ({"options": {"priority": 6, "retry": {"attempts": 0}}}, ["options.priority", "options.retry.attempts"]),
        (
            {"options": {"concurrency": {"max": 0, "when_full": 7}, "rate": {"key": "k", "limit": "0/m"}}},
            [*(f"options.concurrency.{name}" for name in ("key", "max", "when_full")), "options.rate.limit"],
        ),
        ({"options": {"rate": {"key": "k", "limit": "2/m", "cost": 3}}}, ["options.rate.cost"]),
    ],
)
async def test_invalid_task_is_refused_with_every_fault_and_not_stored(
    ntm: Ntm, fields: dict[str, Any], paths: list[str]
) -> None:
    assert await refused(submit_task(ntm, **fields)) == (INVALID, "INVALID_INPUT", paths)
    assert await nothing_listed(ntm, "ann")


@pytest.mark.parametrize(
    ("pages", "head", "paths"),
    [
        ([[]], {}, ["head.total"]),
        ([["{}"]], {"total": 10_001}, ["head.total"]),
        ([["{}"]], {"total": 2}, ["head.total"]),
        ([["{}"], ["{}"]], {"total": 1}, ["head.total"]),
        ([["{}", "7"], ["{"]], {}, ["parameters_json[1]", "parameters_json[2]"]),
        ([['{"x":"' + "y" * 256 * 1024 + '"}']], {}, ["parameters_json[0]"]),
        ([['{"x":"' + "y" * 200 * 1024 + '"}'] * 11] * 4, {}, ["parameters_json"]),
        ([['{"x":"' + "中" * 70 * 1024 + '"}'] * 11] * 4, {}, ["parameters_json"]),
        ([["{}"]], {"node_type": ""}, ["head.node_type"]),
    ],
)
async def test_invalid_batch_is_refused_as_a_whole(
    ntm: Ntm, pages: list[list[str]], head: dict[str, Any], paths: list[str]
) -> None:
    assert await refused(submit_batch(ntm, *pages, **head)) == (INVALID, "INVALID_INPUT", paths)
    assert await nothing_listed(ntm, "ann")


async def test_a_batch_without_a_head_or_with_two_is_refused(ntm: Ntm) -> None:
    head = pb2.BatchHead(user_id="ann", node_type="noop", total=2)

    async def messages(*heads: pb2.BatchHead | None) -> AsyncIterator[pb2.SubmitBatchRequest]:
        for each in heads:
            yield pb2.SubmitBatchRequest(head=each, parameters_json=["{}"])

    for heads in ((), (None,), (head, head)):
        assert await refused(ntm.stub.SubmitBatch(messages(*heads))) == (INVALID, "INVALID_INPUT", ["head"])


@pytest.mark.parametrize("named", [{}, {"task_id": "task:t", "batch_id": "b"}])
async def test_logs_of_neither_or_of_both_a_task_and_a_batch_are_refused(ntm: Ntm, named: dict[str, str]) -> None:
    call = ntm.stub.ListTaskLogs(pb2.ListTaskLogsRequest(user_id="a b", **named))  # type: ignore[arg-type]
    assert await refused(call) == (INVALID, "INVALID_INPUT", ["task_id", "user_id"])


async def test_invalid_task_ids_page_tokens_and_statuses_are_refused(ntm: Ntm) -> None:
    for task_id in ("flow:0:0:a", "batch:b:1", "task:", "x"):
        call = ntm.stub.GetTask(pb2.GetTaskRequest(task_id=task_id, user_id="ann"))
        assert await refused(call) == (INVALID, "INVALID_INPUT", ["task_id"])
    assert (await refused(ntm.stub.ListTasks(pb2.ListTasksRequest(user_id="ann", page_token="x"))))[2] == ["page_token"]
    wrong = pb2.ListBatchesRequest(user_id="ann", statuses=[99])  # type: ignore[list-item]
    assert (await refused(ntm.stub.ListBatches(wrong)))[2] == ["statuses[0]"]
    many = pb2.ListTasksRequest(user_id="ann", statuses=[NODE_TASK_STATUS_FAILED] * 1001)
    assert (await refused(ntm.stub.ListTasks(many)))[2] == ["statuses"]
