"""Dead letters over a real channel: listed with their history, and redriven."""

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, plan
from tests.rpc.node_task_manager.test_ad_hoc import refused, submit_batch, submit_task
from tests.rpc.node_task_manager.test_calls import claim
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2, dead_letter_pb2, node_task_pb2, retry_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.node_task_manager.domain.node_task import NodeTask
from tradewind.node_task_manager.stores.redis_reader import RedisNodeTaskReader

FAILED = node_task_pb2.NODE_TASK_STATUS_FAILED
MakeWorker = Callable[..., RawWorker]


async def letters(ntm: Ntm, user_id: str = "ann") -> list[node_task_pb2.NodeTask]:
    request = dead_letter_pb2.ListDeadLettersRequest(user_id=user_id)
    return list((await ntm.stub.ListDeadLetters(request)).node_tasks)


def redrive(ntm: Ntm, *ids: str, user_id: str = "ann") -> Any:
    request = dead_letter_pb2.RedriveDeadLettersRequest(user_id=user_id, node_task_ids=ids)
    return ntm.stub.RedriveDeadLetters(request)


async def kill_workers(worker: MakeWorker, task_id: str) -> None:
    """Let a node task lose as many workers as it is allowed to."""
    for number in range(3):
        dying = worker("dying", capacity=1)
        await dying.open(incarnation=f"life {number}")
        assert [given.node_task_id for given in await dying.assigned()] == [task_id]
        await dying.close()
    await worker("dying", capacity=1).open(incarnation="the last")


async def test_task_that_kills_its_workers_becomes_a_dead_letter_and_is_redriven(ntm: Ntm, worker: MakeWorker) -> None:
    task = (await submit_task(ntm)).task
    await kill_workers(worker, task.node_task_id)
    (letter,) = await letters(ntm)
    assert (letter.node_task_id, letter.status, letter.error.code) == (task.node_task_id, FAILED, "WORKER_LOST")
    assert [(past.attempt, past.worker_id, past.code) for past in letter.history] == [
        (attempt, "dying", "WORKER_LOST") for attempt in range(1, 4)
    ]
    assert all(past.began_at.ToMilliseconds() <= past.ended_at.ToMilliseconds() for past in letter.history)
    assert await letters(ntm, "bob") == []

    first = await redrive(ntm, task.node_task_id)
    again = await redrive(ntm, task.node_task_id)
    assert first == again, "the same once more gets the same task"
    (redriven,) = first.redriven
    assert redriven.node_task_id == task.node_task_id
    assert redriven.task_id not in ("", task.node_task_id)
    assert await letters(ntm) == []
    request = batch_pb2.GetTaskRequest(task_id=redriven.task_id, user_id="ann")
    assert (await ntm.stub.GetTask(request)).task.config_json == '{"x":1}'


async def test_batch_item_is_redriven_as_a_task(ntm: Ntm, worker: MakeWorker) -> None:
    batch = (await submit_batch(ntm, ['{"x":7}'])).batch
    item = f"batch:{batch.batch_id}:0"
    await kill_workers(worker, item)
    assert [letter.node_task_id for letter in await letters(ntm)] == [item]
    (redriven,) = (await redrive(ntm, item)).redriven
    request = batch_pb2.GetTaskRequest(task_id=redriven.task_id, user_id="ann")
    task = (await ntm.stub.GetTask(request)).task
    assert (task.node_type, task.config_json) == ("noop", '{"x":7}')


async def test_redriven_task_belongs_to_the_trace_of_its_call(ntm: Ntm) -> None:
    task = (await submit_task(ntm)).task
    (given,) = await claim(ntm)
    failure = work_pb2.NodeTaskFailure(token=given.token, non_retryable=True)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    request = dead_letter_pb2.RedriveDeadLettersRequest(user_id="ann", node_task_ids=[task.node_task_id])
    await ntm.stub.RedriveDeadLetters(request, metadata=(("traceparent", traceparent),))
    assert [given.traceparent for given in await claim(ntm)] == [traceparent]


async def test_item_of_another_batch_of_the_same_name_is_redriven_anew(ntm: Ntm) -> None:
    options = batch_pb2.TaskOptions(retry=retry_pb2.RetryPolicy(attempts=2))
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="broke")
    redriven: list[dict[str, Any]] = []
    for parameters in ('{"x":7}', '{"x":7}', '{"x":8}'):
        batch_id = (await submit_batch(ntm, [parameters], request_id="daily", options=options)).batch.batch_id
        (given,) = await claim(ntm)
        failure = work_pb2.NodeTaskFailure(token=given.token, error=error, non_retryable=True)
        await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
        await redrive(ntm, f"batch:{batch_id}:0")
        redriven += [{"id": each.node_task_id, "config": each.config_json} for each in await claim(ntm)]
        await ntm.stub.DeleteBatch(batch_pb2.DeleteBatchRequest(batch_id=batch_id, user_id="ann"))
    assert [each["config"] for each in redriven] == ['{"x":7}', '{"x":7}', '{"x":8}']
    assert len({each["id"] for each in redriven}) == 3


async def test_redriving_a_flow_node_is_refused(ntm: Ntm) -> None:
    graph = plan(nodes="a")
    graph.nodes[0].retry.CopyFrom(retry_pb2.RetryPolicy(attempts=2))
    await ntm.submit(graph)
    (given,) = await claim(ntm)
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="broke", type="KeyError")
    failure = work_pb2.NodeTaskFailure(token=given.token, error=error, non_retryable=True)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="w1", failures=[failure]))
    (letter,) = await letters(ntm, "default")
    assert letter.error.final_reason == "the node asked not to be retried"
    ill = redrive(ntm, "flow:0:0:a", user_id="default")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ill
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "is a node of cycle 0 of flow" in (caught.value.details() or "")


async def test_redriven_task_keeps_max_attempts(ntm: Ntm) -> None:
    options = batch_pb2.TaskOptions(retry=retry_pb2.RetryPolicy(attempts=3))
    task = (await submit_task(ntm, options=options)).task
    (given,) = await claim(ntm)
    failure = work_pb2.NodeTaskFailure(token=given.token, non_retryable=True)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
    (redriven,) = (await redrive(ntm, task.node_task_id)).redriven
    request = batch_pb2.GetTaskRequest(task_id=redriven.task_id, user_id="ann")
    assert (await ntm.stub.GetTask(request)).task.max_attempts == 3


@pytest.mark.parametrize(
    ("limit", "begins"),
    [
        ({"concurrency": node_task_pb2.Concurrency(key="acct-7", max=1)}, 1),
        ({"rate": node_task_pb2.KeyRate(key="acct-7", limit="1/h")}, 0),
    ],
)
async def test_redriven_task_keeps_limits(ntm: Ntm, limit: dict[str, Any], begins: int) -> None:
    options = batch_pb2.TaskOptions(retry=retry_pb2.RetryPolicy(attempts=2), **limit)
    task = (await submit_task(ntm, options=options)).task
    (given,) = await claim(ntm)
    failure = work_pb2.NodeTaskFailure(token=given.token, non_retryable=True)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=[failure]))
    await redrive(ntm, task.node_task_id)
    await submit_task(ntm, options=options)
    assert len(await claim(ntm)) == begins


async def test_dead_letters_are_read_in_bulk(ntm: Ntm, monkeypatch: pytest.MonkeyPatch) -> None:
    options = batch_pb2.TaskOptions(retry=retry_pb2.RetryPolicy(attempts=2))
    for _ in range(3):
        await submit_task(ntm, options=options)
    failures = [work_pb2.NodeTaskFailure(token=given.token, non_retryable=True) for given in await claim(ntm, 3)]
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="u1", failures=failures))
    read, together = RedisNodeTaskReader.tasks, list[int]()

    async def counted(reader: RedisNodeTaskReader, ids: Sequence[str], **options: bool) -> list[NodeTask | None]:
        together.append(len(ids))
        return await read(reader, ids, **options)

    monkeypatch.setattr(RedisNodeTaskReader, "tasks", counted)
    found = [letter.node_task_id for letter in await letters(ntm)]
    assert (len(found), together) == (3, [3])
    together.clear()
    assert [each.node_task_id for each in (await redrive(ntm, *reversed(found))).redriven] == found[::-1]
    assert together[0] == 3
    assert 1 not in together


async def test_redrive_is_all_or_nothing(ntm: Ntm, worker: MakeWorker) -> None:
    dead = (await submit_task(ntm)).task.node_task_id
    await kill_workers(worker, dead)
    well = (await submit_task(ntm, request_id="well")).task.node_task_id
    code, reason, _ = await refused(redrive(ntm, dead, well))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATUS")
    code, reason, _ = await refused(redrive(ntm, dead, "task:unheard"))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")
    code, reason, _ = await refused(redrive(ntm, dead, user_id="bob"))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")
    assert [letter.node_task_id for letter in await letters(ntm)] == [dead]
    tasks = await ntm.stub.ListTasks(batch_pb2.ListTasksRequest(user_id="ann"))
    assert {each.node_task_id for each in tasks.tasks} == {dead, well}


async def test_bad_input_is_refused_with_every_fault(ntm: Ntm) -> None:
    code, reason, paths = await refused(redrive(ntm, "task:x", "nonsense", user_id="no user"))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert paths == ["user_id", "node_task_ids[1]"]
    assert (await refused(redrive(ntm)))[2] == ["node_task_ids"]
    assert (await refused(redrive(ntm, *["task:x"] * 101)))[2] == ["node_task_ids"]
    request = dead_letter_pb2.ListDeadLettersRequest(user_id="ann", page_token="no token")
    assert (await refused(ntm.stub.ListDeadLetters(request)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_retrying_node_task_shows_retry_time_and_last_error(ntm: Ntm) -> None:
    graph = plan(nodes="a")
    graph.nodes[0].retry.CopyFrom(retry_pb2.RetryPolicy(attempts=2, jitter=0))
    graph.nodes[0].retry.initial.FromSeconds(60)
    await ntm.submit(graph)
    (given,) = await claim(ntm)
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="no answer\nat all", type="OSError")
    failure = work_pb2.NodeTaskFailure(token=given.token, error=error)
    await ntm.stub.FailNodeTasks(pb2.FailNodeTasksRequest(worker_id="w1", failures=[failure]))

    async def waits() -> bool:
        return (await ntm.node("a")).HasField("retry_at")

    await until(waits, "it waits for its next attempt")
    task = await ntm.node("a")
    assert (task.failures, task.max_attempts, task.last_error.type) == (1, 2, "OSError")
    assert not task.HasField("error")
    at = task.retry_at.ToDatetime(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert task.reason == f"attempt 2 of 2 begins at {at}; the last one failed: OSError: no answer"
    assert [past.code for past in task.history] == ["NODE_ERROR"]
