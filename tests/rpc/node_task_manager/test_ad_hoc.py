"""Ad-hoc tasks and batches over a real channel."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.no_writes import REFUSALS, refusing_writes
from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, Start
from tests.rpc.node_task_manager.test_calls import claim, complete, reason_of
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1 import config_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as service_pb2
from tradewind.node_task_manager.use_cases import watch_runs

NOOP = {"user_id": "ann", "node_type": "noop"}


async def submit_task(ntm: Ntm, **fields: Any) -> pb2.SubmitTaskResponse:
    return await ntm.stub.SubmitTask(pb2.SubmitTaskRequest(**{**NOOP, "parameters_json": '{"x":1}', **fields}))


async def submit_batch(ntm: Ntm, *pages: Sequence[str], **head: Any) -> pb2.SubmitBatchResponse:
    """Submit a batch, one message per page."""
    total = head.pop("total", sum(map(len, pages)))

    async def messages() -> AsyncIterator[pb2.SubmitBatchRequest]:
        for at, page in enumerate(pages):
            first = pb2.BatchHead(**{**NOOP, "total": total, **head}) if at == 0 else None
            yield pb2.SubmitBatchRequest(head=first, parameters_json=page)

    return await ntm.stub.SubmitBatch(messages())


async def get_batch(ntm: Ntm, batch_id: str, user_id: str = "ann") -> pb2.GetBatchResponse:
    return await ntm.stub.GetBatch(pb2.GetBatchRequest(batch_id=batch_id, user_id=user_id))


def numbers(progress: pb2.BatchProgress) -> tuple[int, ...]:
    """Return the numbers of queued, running, completed, failed and cancelled tasks."""
    return progress.queued, progress.running, progress.completed, progress.failed, progress.cancelled


async def refused(call: Any) -> tuple[grpc.StatusCode, str, list[str]]:
    """Return the code, the reason and the paths of the violations with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type]
    request = error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(request)
    return caught.value.code(), reason_of(caught.value), [each.field for each in request.field_violations]


async def test_batch_results_are_kept_for_the_configured_time_after_its_end(
    start: Start, embedded: RedisServer
) -> None:
    """A batch keeps all results while it is open: the time runs from its own end, not from those of its items."""
    ntm = await start(node_task_manager_result_seconds=600)
    batch = (await submit_batch(ntm, ["{}", "{}"])).batch
    first, second = await claim(ntm, limit=2)
    await complete(ntm, first.token)
    key = f"trading_flow:{{s0}}:run:batch:{batch.batch_id}"
    client = embedded.connect()
    try:
        assert await client.pttl(key) == -1
        await complete(ntm, second.token)
        assert 590_000 < await client.pttl(key) <= 600_000
        assert numbers((await get_batch(ntm, batch.batch_id)).batch.progress)[2] == 2
    finally:
        await embedded.close_clients()


async def test_plan_of_repeated_work_is_stored_once_and_again_after_its_loss(ntm: Ntm, embedded: RedisServer) -> None:
    client = embedded.connect()
    try:
        await submit_task(ntm)
        (plan,) = [key for key in await embedded.keys() if ":plan:" in key]
        await client.execute_command("CONFIG", "RESETSTAT")
        await submit_task(ntm)
        assert "cmdstat_hexists" not in await client.info("commandstats")
        await client.delete(plan)
        third = await submit_task(ntm)
        assert (await ntm.stub.GetTask(pb2.GetTaskRequest(task_id=third.task.node_task_id, user_id="ann"))).task
        assert await client.execute_command("HEXISTS", plan, "facts")
    finally:
        await embedded.close_clients()


async def test_a_task_runs_with_its_parameters_as_config_and_keeps_its_result(ntm: Ntm) -> None:
    task = (await submit_task(ntm)).task
    assert task.node_task_id.startswith("task:")
    assert (task.status, task.config_json) == (node_task_pb2.NODE_TASK_STATUS_PENDING, '{"x":1}')
    assert task.reason == 'no live worker offers node type "noop"'
    (given,) = await claim(ntm)
    assert (given.node_task_id, given.flow_id, given.node_id, given.user_id) == (task.node_task_id, "", "", "ann")
    assert given.config_json == '{"x":1}'
    await complete(ntm, given.token)
    request = pb2.GetTaskRequest(task_id=task.node_task_id, user_id="ann", include_outputs=True)
    ended = (await ntm.stub.GetTask(request)).task
    assert (ended.status, ended.outputs[0].value_json) == (node_task_pb2.NODE_TASK_STATUS_COMPLETED, "1")
    outputs = service_pb2.GetNodeOutputsRequest(
        node_tasks=[service_pb2.NodeTaskReference(node_task_id=task.node_task_id, user_id="ann")]
    )
    assert (await ntm.stub.GetNodeOutputs(outputs)).node_tasks[0].outputs[0].value_json == "1"


async def test_repeated_request_id_returns_first_task_and_refuses_other_work(ntm: Ntm) -> None:
    first = await submit_task(ntm, request_id="r1")
    again = await submit_task(ntm, request_id="r1")
    assert (again.task.node_task_id, first.duplicate, again.duplicate) == (first.task.node_task_id, False, True)
    assert (await submit_task(ntm, request_id="r1", user_id="bob")).task.node_task_id != first.task.node_task_id
    refusal = await refused(submit_task(ntm, request_id="r1", parameters_json='{"x":2}'))
    assert refusal[:2] == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    batch = await submit_batch(ntm, ["{}", "{}"], request_id="r1")
    assert (await submit_batch(ntm, ["{}"], ["{}"], request_id="r1")).batch.batch_id == batch.batch.batch_id
    refusal = await refused(submit_batch(ntm, ["{}", '{"x":1}'], request_id="r1"))
    assert refusal[:2] == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert len(await claim(ntm)) == 4
    without = [(await submit_task(ntm)).task.node_task_id for _ in range(2)]
    assert without[0] != without[1]


async def test_batch_counts_are_exact_and_results_are_in_order(ntm: Ntm) -> None:
    batch = (await submit_batch(ntm, ['{"x":0}', '{"x":1}'], ['{"x":2}'])).batch
    assert (batch.status, batch.node_type, batch.progress.total) == (pb2.BATCH_STATUS_QUEUED, "noop", 3)
    given = sorted(await claim(ntm, 2), key=lambda each: each.node_task_id)
    assert [each.node_task_id for each in given] == [f"batch:{batch.batch_id}:{at}" for at in (0, 1)]
    assert [json.loads(each.config_json) for each in given] == [{"x": 0}, {"x": 1}]
    assert numbers((await get_batch(ntm, batch.batch_id)).batch.progress) == (1, 2, 0, 0, 0)
    await complete(ntm, given[1].token)
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="it broke")
    failures = [work_pb2.NodeTaskFailure(token=given[0].token, error=error)]
    await ntm.stub.FailNodeTasks(service_pb2.FailNodeTasksRequest(worker_id="u1", failures=failures))
    answer = await get_batch(ntm, batch.batch_id)
    assert (numbers(answer.batch.progress), answer.batch.progress.percent) == ((1, 0, 1, 1, 0), 66.66)
    assert answer.reason.startswith("waits for a worker")
    (last,) = await claim(ntm)
    await complete(ntm, last.token)
    ended = (await get_batch(ntm, batch.batch_id)).batch
    assert (ended.status, numbers(ended.progress)) == (pb2.BATCH_STATUS_PARTIAL, (0, 0, 2, 1, 0))
    assert ended.progress.percent == 100
    page = pb2.ListBatchResultsRequest(batch_id=batch.batch_id, user_id="ann", page_size=2, include_parameters=True)
    first = await ntm.stub.ListBatchResults(page)
    page.page_token = first.next_page_token
    rest = await ntm.stub.ListBatchResults(page)
    items = [*first.items, *rest.items]
    assert [json.loads(item.config_json)["x"] for item in items] == [0, 1, 2]
    assert [item.error.message for item in items] == ["it broke", "", ""]
    assert [[output.value_json for output in item.outputs] for item in items] == [[], ["1"], ["1"]]
    assert rest.next_page_token == ""


async def test_cancelling_a_batch_skips_queued_items_and_stops_running_ones(
    ntm: Ntm, worker: Callable[..., RawWorker]
) -> None:
    running = worker(capacity=2)
    await running.open()
    batch = (await submit_batch(ntm, ["{}"] * 5)).batch
    tokens = [each.token for each in await running.assigned(2)]
    request = pb2.CancelBatchRequest(batch_id=batch.batch_id, user_id="ann", reason="enough")
    cancelled = (await ntm.stub.CancelBatch(request)).batch
    assert (cancelled.status, numbers(cancelled.progress)) == (pb2.BATCH_STATUS_RUNNING, (0, 2, 0, 0, 3))
    assert (cancelled.stop.reason, cancelled.stop.by) == ("enough", "ann")
    await until(
        lambda: sum(len(each.terminations) for each in running.responses) == 2, "the worker is asked to stop both"
    )
    await running.send(failures=[work_pb2.NodeTaskFailure(token=tokens[0], terminated=True)])
    await running.complete(tokens[1], out="1")
    ended = (await get_batch(ntm, batch.batch_id)).batch
    assert (ended.status, numbers(ended.progress)) == (pb2.BATCH_STATUS_CANCELLED, (0, 0, 1, 0, 4))
    again = (await ntm.stub.CancelBatch(request)).batch
    assert again == ended


async def test_batch_is_deleted_once_it_has_ended(ntm: Ntm) -> None:
    batch_id = (await submit_batch(ntm, ["{}"] * 2, request_id="again")).batch.batch_id
    request = pb2.DeleteBatchRequest(batch_id=batch_id, user_id="ann")
    first, second = await claim(ntm)
    await complete(ntm, first.token)
    assert await refused(ntm.stub.DeleteBatch(request)) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATUS", [])
    await complete(ntm, second.token)
    await ntm.stub.DeleteBatch(request)
    results = pb2.ListBatchResultsRequest(batch_id=batch_id, user_id="ann")
    for call in (get_batch(ntm, batch_id), ntm.stub.ListBatchResults(results), ntm.stub.DeleteBatch(request)):
        assert await refused(call) == (grpc.StatusCode.NOT_FOUND, "BATCH_NOT_FOUND", [])
    again = await submit_batch(ntm, ["{}"] * 3, request_id="again")
    assert (again.batch.batch_id, again.duplicate, again.batch.progress.queued) == (batch_id, False, 3)


async def test_batch_is_deleted_while_the_store_is_full(ntm: Ntm, embedded: RedisServer) -> None:
    batch_id = (await submit_batch(ntm, ["{}"])).batch.batch_id
    (only,) = await claim(ntm)
    await complete(ntm, only.token)
    async with refusing_writes(embedded, next(iter(REFUSALS))):
        await ntm.stub.DeleteBatch(pb2.DeleteBatchRequest(batch_id=batch_id, user_id="ann"))
        assert await refused(get_batch(ntm, batch_id)) == (grpc.StatusCode.NOT_FOUND, "BATCH_NOT_FOUND", [])


async def test_queued_task_is_cancelled_at_once(ntm: Ntm) -> None:
    task_id = (await submit_task(ntm)).task.node_task_id
    request = pb2.CancelTaskRequest(task_id=task_id, user_id="ann")
    cancelled = (await ntm.stub.CancelTask(request)).task
    assert (cancelled.status, cancelled.reason) == (node_task_pb2.NODE_TASK_STATUS_SKIPPED, "cancelled")
    assert (await ntm.stub.CancelTask(request)).task == cancelled
    assert await claim(ntm) == []


async def test_limit_that_delays_batch_items_is_reported(ntm: Ntm) -> None:
    config = config_pb2.SystemConfig(max_concurrent_tasks=2)
    mask = FieldMask(paths=["max_concurrent_tasks"])
    await ntm.stub.UpdateConfig(config_pb2.UpdateConfigRequest(config=config, update_mask=mask))
    batch = (await submit_batch(ntm, ["{}"] * 4, user_id="limited")).batch
    task_id = (await submit_task(ntm, user_id="limited")).task.node_task_id
    assert len(await claim(ntm)) == 2
    answer = await get_batch(ntm, batch.batch_id, "limited")
    assert numbers(answer.batch.progress)[:2] in ((2, 2), (3, 1))
    assert answer.reason == 'waits: the limit on running ad-hoc tasks of user "limited" is reached'
    (task,) = (await ntm.stub.ListTasks(pb2.ListTasksRequest(user_id="limited"))).tasks
    assert (task.node_task_id, task.reason != "") == (task_id, True)


@pytest.fixture
def no_fallback_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchers do not check for changes that they were not told of."""
    monkeypatch.setattr(watch_runs, "_POLL_S", 600.0)


@pytest.mark.usefixtures("no_fallback_reads")
async def test_task_watcher_sees_each_change_and_the_outputs(ntm: Ntm, worker: Callable[..., RawWorker]) -> None:
    task_id = (await submit_task(ntm)).task.node_task_id
    request = pb2.WatchTaskRequest(task_id=task_id, user_id="ann", include_outputs=True)
    seen: list[pb2.WatchTaskResponse] = []

    async def watch() -> None:
        async for response in ntm.stub.WatchTask(request):
            seen.append(response)

    watching = asyncio.create_task(watch())
    await until(lambda: seen, "the task is shown")
    running = worker()
    await running.open()
    (given,) = await running.assigned()
    await until(lambda: seen[-1].task.status == node_task_pb2.NODE_TASK_STATUS_RUNNING, "it is shown running")
    await running.send(progress=[work_pb2.NodeTaskProgress(token=given.token, progress=40, message="so far")])
    await until(lambda: seen[-1].task.progress == 40, "its progress is shown")
    await running.complete(given.token, out="5")
    await asyncio.wait_for(watching, 30)
    assert (seen[-1].task.status, seen[-1].task.outputs[0].value_json) == (
        node_task_pb2.NODE_TASK_STATUS_COMPLETED,
        "5",
    )


@pytest.mark.usefixtures("no_fallback_reads")
async def test_batch_watcher_at_another_replica_sees_progress(start: Start) -> None:
    here, there = await start(), await start()
    batch_id = (await submit_batch(here, ["{}"] * 3)).batch.batch_id
    seen: list[pb2.Batch] = []

    async def watch() -> None:
        async for response in there.stub.WatchBatch(pb2.WatchBatchRequest(batch_id=batch_id, user_id="ann")):
            seen.append(response.batch)

    watching = asyncio.create_task(watch())
    await until(lambda: seen, "the batch is shown")
    for count in (1, 2, 3):
        (given,) = await claim(here, 1)
        await complete(here, given.token)
        await until(lambda count=count: seen[-1].progress.completed == count, "progress is shown")
    await asyncio.wait_for(watching, 30)
    assert all(sum(numbers(each.progress)) == each.progress.total == 3 for each in seen)
    assert seen[-1].status == pb2.BATCH_STATUS_COMPLETED


async def test_tasks_and_batches_are_listed_newest_first_and_by_status(ntm: Ntm) -> None:
    submitted = [(await submit_task(ntm)).task for _ in range(5)]
    tasks = [task.node_task_id for task in submitted]
    await submit_task(ntm, user_id="bob")
    await ntm.stub.CancelTask(pb2.CancelTaskRequest(task_id=tasks[1], user_id="ann"))
    listed: list[str] = []
    token = ""
    while True:
        page = await ntm.stub.ListTasks(pb2.ListTasksRequest(user_id="ann", page_size=2, page_token=token))
        listed += [task.node_task_id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
    # Among tasks of the same millisecond the greater id comes first.
    newest = sorted(((task.registered_at.ToMilliseconds(), task.node_task_id) for task in submitted), reverse=True)
    assert listed == [task_id for _, task_id in newest]
    request = pb2.ListTasksRequest(user_id="ann", statuses=[node_task_pb2.NODE_TASK_STATUS_SKIPPED])
    (skipped,) = (await ntm.stub.ListTasks(request)).tasks
    assert (skipped.node_task_id, skipped.node_type) == (tasks[1], "noop")
    first = (await submit_batch(ntm, ["{}"])).batch.batch_id
    second = (await submit_batch(ntm, ["{}"] * 2)).batch.batch_id
    await ntm.stub.CancelBatch(pb2.CancelBatchRequest(batch_id=first, user_id="ann"))
    both = (await ntm.stub.ListBatches(pb2.ListBatchesRequest(user_id="ann"))).batches
    assert {each.batch_id for each in both} == {first, second}
    times = [each.submitted_at.ToMilliseconds() for each in both]
    assert times == sorted(times, reverse=True)
    only = pb2.ListBatchesRequest(user_id="ann", statuses=[pb2.BATCH_STATUS_CANCELLED])
    assert [each.batch_id for each in (await ntm.stub.ListBatches(only)).batches] == [first]


async def test_logs_are_listed_by_task_and_by_batch(ntm: Ntm, worker: Callable[..., RawWorker]) -> None:
    running = worker()
    await running.open()
    task_id = (await submit_task(ntm)).task.node_task_id
    batch_id = (await submit_batch(ntm, ["{}", "{}"])).batch.batch_id
    lines = [
        work_pb2.NodeTaskLog(token=each.token, level="INFO", message="hello") for each in await running.assigned(3)
    ]
    await running.send(logs=lines)

    async def logs(**of: Any) -> list[tuple[str, str]]:
        answer = await ntm.stub.ListTaskLogs(pb2.ListTaskLogsRequest(user_id="ann", **of))
        return sorted((line.node_id, line.message) for line in answer.logs)

    async def kept() -> bool:
        return await logs(batch_id=batch_id) == [("0", "hello"), ("1", "hello")]

    await until(kept, "the lines are kept")
    assert await logs(task_id=task_id) == [("", "hello")]


async def test_stopping_server_ends_batch_uploads(ntm: Ntm) -> None:
    never = asyncio.Event()
    service: Any = ntm.server._services[0]

    async def messages() -> AsyncIterator[pb2.SubmitBatchRequest]:
        yield pb2.SubmitBatchRequest(head=pb2.BatchHead(user_id="ann", node_type="noop", total=2))
        await never.wait()

    async def upload() -> None:
        await ntm.stub.SubmitBatch(messages(), timeout=20)

    uploading = asyncio.create_task(upload())
    await until(lambda: service._streams._open, "the server has begun with the upload")
    stopping = asyncio.create_task(ntm.server.stop())
    assert (await refused(uploading))[0] is grpc.StatusCode.UNAVAILABLE
    never.set()
    await asyncio.wait_for(stopping, 15)


async def test_batch_may_have_ten_thousand_items(ntm: Ntm) -> None:
    pages = [[f'{{"x":{at}}}' for at in range(first, first + 2500)] for first in range(0, 10_000, 2500)]
    batch = (await submit_batch(ntm, *pages)).batch
    assert (batch.progress.total, sum(numbers(batch.progress))) == (10_000, 10_000)
    request = pb2.CancelBatchRequest(batch_id=batch.batch_id, user_id="ann")
    await ntm.stub.CancelBatch(request)

    async def all_cancelled() -> bool:
        progress = (await get_batch(ntm, batch.batch_id)).batch.progress
        assert sum(numbers(progress)) == progress.total
        return progress.cancelled == 10_000

    await until(all_cancelled, "every item is cancelled")
