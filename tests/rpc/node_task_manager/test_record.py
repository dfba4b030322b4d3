"""The record of a node task, in the words of the specification, from its submission to its end."""

from collections.abc import Callable

import pytest

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2 as pb2

CHAIN = plan(("a", "out", "b", "price"))
LOGS = node_task_manager_service_pb2.ListNodeLogsRequest(flow_id="flow", user_id="default")

MakeWorker = Callable[..., RawWorker]


async def test_running_node_task_reports_every_field(ntm: Ntm, worker: MakeWorker) -> None:
    w = worker("w1")
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    await w.send(
        progress=[work_pb2.NodeTaskProgress(token=a.token, progress=40, message="averaging", current_step="sums")]
    )

    async def recorded() -> bool:
        return bool((await ntm.node("a")).progress == 40)

    await until(recorded, "the progress is on record")
    task = await ntm.node("a")
    assert (task.node_task_id, task.flow_id, task.cycle, task.node_id) == ("flow:0:0:a", "flow", 0, "a")
    assert (task.node_type, task.component_id, task.run_id, task.user_id) == ("noop", "0", "r0", "default")
    assert (task.worker_id, task.status, task.attempt) == ("w1", pb2.NODE_TASK_STATUS_RUNNING, 1)
    assert (task.progress, task.message, task.config_json) == (40, "averaging", '{"window":3}')
    assert (task.current_step, task.cached_in) == ("sums", "")
    assert not task.HasField("error")
    times = [getattr(task, name).ToMilliseconds() for name in ("registered_at", "started_at", "updated_at")]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000_000
    assert task.lease_deadline.ToMilliseconds() > times[1]
    assert not task.HasField("ended_at")


@pytest.mark.parametrize("kind", ["completed", "failed"])
async def test_ended_node_task_keeps_its_times_and_records_its_end(ntm: Ntm, worker: MakeWorker, kind: str) -> None:
    w = worker("w1")
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    before = await ntm.node("a")
    if kind == "completed":
        await w.complete(a.token, out="1")
    else:
        error = pb2.NodeTaskError(code="NODE_ERROR", message="it broke", type="ValueError")
        await w.acknowledged(await w.send(failures=[work_pb2.NodeTaskFailure(token=a.token, error=error)]))
    after = await ntm.node("a")
    assert after.status == pb2.NodeTaskStatus.Value(f"NODE_TASK_STATUS_{kind.upper()}")
    assert (after.registered_at, after.started_at) == (before.registered_at, before.started_at)
    assert after.ended_at == after.updated_at
    assert after.ended_at.ToMilliseconds() >= after.started_at.ToMilliseconds()
    assert after.error.message == ("" if kind == "completed" else "it broke")
    assert not after.HasField("lease_deadline")


@pytest.mark.parametrize("way", ["stream", "FailNodeTasks", "ReportNodeTasks"])
async def test_failed_attempt_is_logged_with_its_traceback(ntm: Ntm, worker: MakeWorker, way: str) -> None:
    w = worker("w1")
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    error = pb2.NodeTaskError(
        code="NODE_ERROR",
        message="it broke",
        type="ValueError",
        traceback="Traceback:\n  in average\nValueError: it broke\n",
    )
    failure = work_pb2.NodeTaskFailure(token=a.token, error=error)
    stale = work_pb2.NodeTaskFailure(token=f"{a.token}x", error=error)
    if way == "stream":
        await w.acknowledged(await w.send(failures=[failure, stale]))
    elif way == "FailNodeTasks":
        await ntm.stub.FailNodeTasks(
            node_task_manager_service_pb2.FailNodeTasksRequest(worker_id="w1", failures=[failure, stale])
        )
    else:
        await ntm.stub.ReportNodeTasks(
            node_task_manager_service_pb2.ReportNodeTasksRequest(worker_id="w1", failures=[failure, stale])
        )

    async def logged() -> bool:
        return bool((await ntm.stub.ListNodeLogs(LOGS)).logs)

    await until(logged, "the line is there")
    (line,) = (await ntm.stub.ListNodeLogs(LOGS)).logs
    assert (line.node_id, line.attempt, line.level, line.source) == ("a", 1, "ERROR", "system")
    assert (
        line.message
        == "attempt 1 failed: NODE_ERROR: ValueError: it broke\nTraceback:\n  in average\nValueError: it broke"
    )
    task = await ntm.node("a")
    assert task.started_at.ToMilliseconds() <= line.created_at.ToMilliseconds()


@pytest.mark.parametrize("way", ["one message", "one after the other", "a call", "a wait"])
async def test_progress_reported_just_before_the_end_is_kept(ntm: Ntm, worker: MakeWorker, way: str) -> None:
    w = worker("w1")
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    progress = [work_pb2.NodeTaskProgress(token=a.token, progress=40, message="fitting IBM", current_step="fits")]
    error = pb2.NodeTaskError(code="NODE_ERROR", message="it broke")
    failures = [work_pb2.NodeTaskFailure(token=a.token, error=error)]
    if way == "a call":
        report = node_task_manager_service_pb2.ReportNodeTasksRequest(
            worker_id="w1", progress=progress, failures=failures
        )
        await ntm.stub.ReportNodeTasks(report)
    elif way == "a wait":
        await w.send(progress=progress)
        wait = work_pb2.WaitOrder(signal="approval")
        await w.acknowledged(await w.send(completions=[work_pb2.NodeTaskCompletion(token=a.token, wait=wait)]))
    elif way == "one message":
        await w.acknowledged(await w.send(progress=progress, failures=failures))
    else:
        await w.send(progress=progress)
        await w.acknowledged(await w.send(failures=failures))
    task = await ntm.node("a")
    assert (task.progress, task.message, task.current_step) == (40, "fitting IBM", "fits")
    assert task.status == (pb2.NODE_TASK_STATUS_SUSPENDED if way == "a wait" else pb2.NODE_TASK_STATUS_FAILED)


@pytest.mark.parametrize("way", ["a failure", "a wait"])
async def test_progress_of_a_worker_without_stream_is_kept_when_its_next_call_ends_the_attempt(
    ntm: Ntm, way: str
) -> None:
    await ntm.submit(CHAIN)
    claim = node_task_manager_service_pb2.ClaimNodeTasksRequest(worker_id="w1", node_types=["noop"])
    (a,) = (await ntm.stub.ClaimNodeTasks(claim)).assignments
    lines = [work_pb2.NodeTaskLog(token=a.token, level="INFO", message="fitting")] * 1000
    progress = [work_pb2.NodeTaskProgress(token=a.token, progress=40, message="fitting IBM")]
    report = node_task_manager_service_pb2.ReportNodeTasksRequest
    await ntm.stub.ReportNodeTasks(report(worker_id="w1", logs=lines))
    await ntm.stub.ReportNodeTasks(report(worker_id="w1", progress=progress))
    if way == "a failure":
        failed = work_pb2.NodeTaskFailure(token=a.token, error=pb2.NodeTaskError(code="NODE_ERROR", message="it broke"))
        request = node_task_manager_service_pb2.FailNodeTasksRequest(worker_id="w1", failures=[failed])
        await ntm.stub.FailNodeTasks(request)
    else:
        waits = work_pb2.NodeTaskCompletion(token=a.token, wait=work_pb2.WaitOrder(signal="approval"))
        await ntm.stub.CompleteNodeTasks(
            node_task_manager_service_pb2.CompleteNodeTasksRequest(worker_id="w1", completions=[waits])
        )
    task = await ntm.node("a")
    assert (task.progress, task.message) == (40, "fitting IBM")


async def test_texts_of_workers_are_cut_by_characters_not_bytes(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    claim = node_task_manager_service_pb2.ClaimNodeTasksRequest(worker_id="w1", node_types=["noop"])
    (a,) = (await ntm.stub.ClaimNodeTasks(claim)).assignments
    long = "漢" * 20_000
    report = node_task_manager_service_pb2.ReportNodeTasksRequest(
        worker_id="w1",
        progress=[work_pb2.NodeTaskProgress(token=a.token, progress=40, message=long, current_step=long)],
        logs=[work_pb2.NodeTaskLog(token=a.token, level="INFO", message=long)],
        failures=[
            work_pb2.NodeTaskFailure(
                token=a.token, error=pb2.NodeTaskError(code="NODE_ERROR", message=long, traceback=long)
            )
        ],
    )
    await ntm.stub.ReportNodeTasks(report)
    task = await ntm.node("a")
    assert (len(task.message), len(task.current_step)) == (1024, 256)
    assert (len(task.error.message), len(task.error.traceback)) == (4096, 16_384)
    line, *_ = (await ntm.stub.ListNodeLogs(LOGS)).logs
    assert len(line.message) == 8192


async def test_next_attempt_resets_progress(ntm: Ntm, worker: MakeWorker) -> None:
    first, second = worker("w1"), worker("w2")
    await first.open()
    await ntm.submit(CHAIN)
    (a,) = await first.assigned()
    await first.send(
        progress=[work_pb2.NodeTaskProgress(token=a.token, progress=90, message="nearly", current_step="ends")]
    )

    async def recorded() -> bool:
        return bool((await ntm.node("a")).progress == 90)

    await until(recorded, "the progress is on record")
    await second.open()
    await first.send(draining=True, give_back_tokens=[a.token])
    await second.assigned()
    task = await ntm.node("a")
    assert (task.attempt, task.worker_id, task.progress) == (2, "w2", 0)
    assert (task.message, task.current_step) == ("", "")
    # The previous attempt is no longer listened to, and progress does not fall.
    for worker_, token, reached in (
        (first, a.token, 95),
        (second, second.assignments[0].token, 30),
        (second, second.assignments[0].token, 20),
    ):
        await worker_.send(progress=[work_pb2.NodeTaskProgress(token=token, progress=reached, message=f"at {reached}")])

    async def second_recorded() -> bool:
        return (await ntm.node("a")).progress == 30

    await until(second_recorded, "its own progress counts")


@pytest.mark.parametrize("by_a_call", [False, True])
async def test_log_lines_of_given_back_node_task_are_kept(ntm: Ntm, worker: MakeWorker, by_a_call: bool) -> None:
    first, second = worker("w1"), worker("w2")
    await first.open()
    await ntm.submit(CHAIN)
    (a,) = await first.assigned()
    await first.send(draining=True)
    await second.open()
    logs = [work_pb2.NodeTaskLog(token=a.token, level="INFO", message=f"at {number}") for number in range(450)]
    if by_a_call:
        report = node_task_manager_service_pb2.ReportNodeTasksRequest(
            worker_id="w1", logs=logs, give_back_tokens=[a.token]
        )
        await ntm.stub.ReportNodeTasks(report)
    else:
        await first.send(logs=logs, give_back_tokens=[a.token])
    await second.assigned()
    request = node_task_manager_service_pb2.ListNodeLogsRequest(flow_id="flow", user_id="default", page_size=1000)
    assert [line.message for line in (await ntm.stub.ListNodeLogs(request)).logs] == [each.message for each in logs]


async def test_log_levels_are_normalized(ntm: Ntm, worker: MakeWorker) -> None:
    w = worker("w1")
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    levels = ["DEBUG", "info", "Warning", "ERROR", "CRITICAL", "LOUD", ""]
    await w.send(logs=[work_pb2.NodeTaskLog(token=a.token, level=level, message="x") for level in levels])
    kept: list[str] = []

    async def logged() -> bool:
        kept[:] = [line.level for line in (await ntm.stub.ListNodeLogs(LOGS)).logs]
        return len(kept) == len(levels)

    await until(logged, "all lines are kept")
    assert kept == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "INFO", "INFO"]


async def test_long_traceback_is_shortened_in_the_middle(ntm: Ntm, worker: MakeWorker) -> None:
    w = worker("w1")
    await w.open()
    await ntm.submit(CHAIN)
    (a,) = await w.assigned()
    error = pb2.NodeTaskError(code="NODE_ERROR", message="m" * 4096, traceback="é" * 9000 + "\nValueError: the end")
    await w.acknowledged(await w.send(failures=[work_pb2.NodeTaskFailure(token=a.token, error=error)]))

    async def logged() -> bool:
        return bool((await ntm.stub.ListNodeLogs(LOGS)).logs)

    await until(logged, "the line is there")
    (line,) = (await ntm.stub.ListNodeLogs(LOGS)).logs
    assert len(line.message) == 8192
    assert line.message.startswith("attempt 1 failed: NODE_ERROR: mmm")
    assert line.message.endswith("éé\nValueError: the end")
