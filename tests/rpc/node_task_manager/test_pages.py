"""Pages whose entries are so large that one message cannot hold as many as were asked for."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tests.rpc.node_task_manager.test_ad_hoc import submit_batch, submit_task
from tests.rpc.node_task_manager.test_calls import claim
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import (
    batch_pb2,
    dead_letter_pb2,
    node_task_pb2,
    notification_pb2,
    retry_pb2,
    work_pb2,
)
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.client import Client

WIDE = "\u4e2d"
"""A character that takes three bytes."""


async def paged(call: Callable[[Any], Awaitable[Any]], request: Any, field: str) -> list[Any]:
    """Read all pages of a list, with the largest page size."""
    request.page_size, found = 1000, list[Any]()
    while True:
        page = await call(request)
        found += getattr(page, field)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def fail(ntm: Ntm, count: int) -> None:
    """Fail `count` node tasks for good, each with the longest possible error."""
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="m" * 4096, traceback="t" * 16384)
    failures: list[work_pb2.NodeTaskFailure] = []
    while len(failures) < count:
        failures += [
            work_pb2.NodeTaskFailure(token=a.token, error=error, non_retryable=True) for a in await claim(ntm, 100)
        ]
    for first in range(0, count, 100):
        some = failures[first : first + 100]
        await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=some))


async def test_tasks_with_long_errors_are_listed(ntm: Ntm) -> None:
    submitted = [(await submit_task(ntm)).task for _ in range(250)]
    await fail(ntm, 250)
    failed = [node_task_pb2.NODE_TASK_STATUS_FAILED]
    found = await paged(ntm.stub.ListTasks, batch_pb2.ListTasksRequest(user_id="ann", statuses=failed), "tasks")
    # Among tasks of the same millisecond the greater id comes first.
    newest = sorted(((each.registered_at.ToMilliseconds(), each.node_task_id) for each in submitted), reverse=True)
    assert [(each.registered_at.ToMilliseconds(), each.node_task_id) for each in found] == newest


async def test_dead_letters_with_long_errors_are_listed(ntm: Ntm) -> None:
    options = batch_pb2.TaskOptions(retry=retry_pb2.RetryPolicy(attempts=2))
    await submit_batch(ntm, ["{}"] * 250, options=options)
    await fail(ntm, 250)
    found = await paged(ntm.stub.ListDeadLetters, dead_letter_pb2.ListDeadLettersRequest(user_id="ann"), "node_tasks")
    assert sorted(int(each.node_id) for each in found) == list(range(250))


async def test_results_are_listed_with_large_parameters(ntm: Ntm) -> None:
    parameters = [json.dumps({"at": at, "x": "x" * 200_000}) for at in range(40)]
    batch = (await submit_batch(ntm, *[parameters[at : at + 10] for at in range(0, 40, 10)])).batch
    request = batch_pb2.ListBatchResultsRequest(batch_id=batch.batch_id, user_id="ann", include_parameters=True)
    found = await paged(ntm.stub.ListBatchResults, request, "items")
    assert [each.config_json for each in found] == parameters


async def test_waiting_node_tasks_with_large_forms_are_listed(ntm: Ntm) -> None:
    names = [f"n{at}" for at in range(120)]
    await ntm.submit(plan(nodes=" ".join(names)))
    fields = [{"name": f"f{at}", "type": "text", "choices": ["x" * 1100]} for at in range(50)]
    form = json.dumps({"title": "?", "fields": fields})
    taken = await claim(ntm, 120)
    for first in range(0, 120, 40):
        waits = [
            work_pb2.NodeTaskCompletion(token=a.token, wait=work_pb2.WaitOrder(signal="ok", form_json=form))
            for a in taken[first : first + 40]
        ]
        await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=waits))
    found = await paged(
        ntm.stub.ListNodeTasks, pb2.ListNodeTasksRequest(flow_id="flow", user_id="default"), "node_tasks"
    )
    assert [(each.node_id, each.wait.form_json) for each in found] == [(name, form) for name in names]


async def test_notifications_with_long_messages_are_listed(ntm: Ntm) -> None:
    draft = notification_pb2.NotificationDraft(user_id="ann", title="t" * 200, message="m" * 4096)
    for _ in range(10):
        request = notification_pb2.PublishNotificationsRequest(notifications=[draft] * 100)
        await ntm.stub.PublishNotifications(request)
    listing = notification_pb2.ListNotificationsRequest(user_id="ann")
    found = await paged(ntm.stub.ListNotifications, listing, "notifications")
    assert len({each.notification_id for each in found}) == len(found) == 1000


async def with_outputs(ntm: Ntm, names: list[str], value: str) -> None:
    """Let nodes emit a value."""
    await ntm.submit(plan(nodes=" ".join(names)))
    for each in await claim(ntm, 100):
        done = work_pb2.NodeTaskCompletion(token=each.token, outputs=[{"handle": "out", "value_json": value}])  # type: ignore[list-item]
        await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done]))


async def test_pages_of_outputs_are_limited_by_bytes(ntm: Ntm) -> None:
    names, value = list("abcdefgh"), f'"{WIDE * 300_000}"'
    await with_outputs(ntm, names, value)
    request = pb2.ListNodeTasksRequest(flow_id="flow", user_id="default", include_outputs=True)
    found = await paged(ntm.stub.ListNodeTasks, request, "node_tasks")
    assert [(each.node_id, each.outputs[0].value_json) for each in found] == [(name, value) for name in names]
    wanted = [pb2.NodeTaskReference(node_task_id=f"flow:0:0:{name}", user_id="default") for name in names]
    read = list[pb2.NodeTaskOutputs]()
    while len(read) < len(names):
        read += (await ntm.stub.GetNodeOutputs(pb2.GetNodeOutputsRequest(node_tasks=wanted[len(read) :]))).node_tasks
    assert [each.node_task_id[-1] for each in read] == names


@pytest.mark.parametrize("letter", ["x", WIDE])
async def test_long_log_lines_are_read_in_pages(ntm: Ntm, letter: str) -> None:
    await ntm.submit(plan(nodes="a"))
    task_id = (await submit_task(ntm)).task.node_task_id
    messages = [f"{at:4}{letter * 8188}" for at in range(600)]
    taken = await claim(ntm)
    for first in range(0, 600, 60):
        logs = [
            work_pb2.NodeTaskLog(token=a.token, level="INFO", message=message)
            for message in messages[first : first + 60]
            for a in taken
        ]
        await ntm.stub.ReportNodeTasks(pb2.ReportNodeTasksRequest(worker_id="u1", logs=logs))

    async def lines(request: pb2.ListNodeLogsRequest) -> AsyncIterator[str]:
        more = True
        while more:
            page = await ntm.stub.ListNodeLogs(request)
            for line in page.logs:
                yield line.message
                request.after_log_id = line.log_id
            more = page.more

    async with Client(ntm.server.address, user_id="ann") as client:

        async def all_are_there() -> bool:
            request = pb2.ListNodeLogsRequest(flow_id="flow", user_id="default", page_size=1000)
            of_task = [line.message async for line in client.list_task_logs(task_id)]
            return messages == [line async for line in lines(request)] == of_task

        await until(all_are_there, "all lines are kept")
