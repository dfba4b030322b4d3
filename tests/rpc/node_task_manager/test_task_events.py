"""Events of ad-hoc tasks over a real channel: each once and in order, across lost connections and restarts."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, RawWorker, Start
from tests.rpc.node_task_manager.test_ad_hoc import refused, submit_task
from tests.rpc.node_task_manager.test_calls import claim, complete
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as service_pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2, retry_pb2, task_event_pb2, work_pb2
from tradewind.server.redis.client import Client

ERROR = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="it broke", type="IOError", traceback="line 1")
TWICE = pb2.TaskOptions(retry=retry_pb2.RetryPolicy(attempts=2, initial={"nanos": 1_000_000}))  # type: ignore[arg-type]


class TaskWatch:
    """A client that watches a task, from the beginning or from an event on."""

    def __init__(self, ntm: Ntm, task_id: str, after: str = "", user_id: str = "ann") -> None:
        request = pb2.WatchTaskRequest(task_id=task_id, user_id=user_id, include_outputs=True, after_event_id=after)
        self.seen: list[pb2.WatchTaskResponse] = []
        self._call: Any = ntm.stub.WatchTask(request)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for response in self._call:
            self.seen.append(response)

    @property
    def kinds(self) -> list[str]:
        """Return what has happened, in words."""
        return [word(response.event) for response in self.seen]

    async def over(self) -> Sequence[pb2.WatchTaskResponse]:
        """Wait until the server has ended the watch."""
        await asyncio.wait_for(self._reading, 10)
        return self.seen

    async def leave(self) -> str:
        """Break off the watch; return the event to resume from, "" when nothing has happened."""
        self._call.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        return self.seen[-1].event.event_id if self.seen else ""


def word(event: task_event_pb2.TaskEvent) -> str:
    return task_event_pb2.TaskEventKind.Name(event.kind).removeprefix("TASK_EVENT_KIND_").lower()


async def fail(ntm: Ntm, token: str) -> None:
    failures = [work_pb2.NodeTaskFailure(token=token, error=ERROR)]
    await ntm.stub.FailNodeTasks(service_pb2.FailNodeTasksRequest(worker_id="u1", failures=failures))


async def claim_one(ntm: Ntm) -> work_pb2.NodeTaskAssignment:
    """Wait until there is something to claim, and claim it."""
    found: list[work_pb2.NodeTaskAssignment] = []

    async def claimed() -> bool:
        found.extend(await claim(ntm, 1))
        return bool(found)

    await until(claimed, "a node task is ready")
    return found[0]


async def test_every_change_is_reported_once_with_the_task_at_that_time(ntm: Ntm) -> None:
    task_id = (await submit_task(ntm, options=TWICE)).task.node_task_id
    live = TaskWatch(ntm, task_id)
    await until(lambda: live.kinds == ["queued"], "the task is shown")
    first = await claim_one(ntm)
    await fail(ntm, first.token)
    second = await claim_one(ntm)
    await complete(ntm, second.token)
    seen = await live.over()
    assert live.kinds == ["queued", "running", "retrying", "queued", "running", "completed"]
    _, running, retrying, _, again, completed = seen
    assert (running.task.attempt, running.task.worker_id, running.event.worker_id) == (1, "u1", "u1")
    assert (retrying.event.error.type, retrying.event.error.message) == ("IOError", "it broke")
    assert retrying.event.error.traceback == ""
    assert retrying.event.retry_at.seconds > 0
    assert retrying.task.last_error.message == "it broke"
    assert (again.task.status, again.task.attempt) == (node_task_pb2.NODE_TASK_STATUS_RUNNING, 2)
    assert completed.task.outputs[0].value_json == "1"
    late = TaskWatch(ntm, task_id, "0-0")
    replayed = await late.over()
    assert [each.event for each in replayed] == [each.event for each in seen]
    assert [each.task.status for each in replayed] == [each.task.status for each in seen]
    assert not any(each.task.outputs or each.task.HasField("ended_at") for each in replayed[:-1])


async def test_returning_watcher_resumes_after_last_event_across_a_restart(start: Start) -> None:
    ntm = await start()
    task_id = (await submit_task(ntm)).task.node_task_id
    first = TaskWatch(ntm, task_id)
    await until(lambda: first.kinds == ["queued"], "the task is shown")
    given = await claim_one(ntm)
    await until(lambda: first.kinds == ["queued", "running"], "it runs")
    last = await first.leave()
    await ntm.server.stop()
    again = await start()
    await complete(again, given.token)
    second = TaskWatch(again, task_id, last)
    assert [word(each.event) for each in await second.over()] == ["completed"]
    third = TaskWatch(again, task_id, second.seen[-1].event.event_id)
    (end,) = await third.over()
    assert (end.HasField("event"), end.task.status) == (False, node_task_pb2.NODE_TASK_STATUS_COMPLETED)


async def test_event_gap_is_reported_and_retained_events_follow(start: Start) -> None:
    ntm = await start(node_task_manager_task_events=2)
    task_id = (await submit_task(ntm, options=TWICE)).task.node_task_id
    first = TaskWatch(ntm, task_id)
    await until(lambda: first.kinds == ["queued"], "the task is shown")
    last = await first.leave()
    await fail(ntm, (await claim_one(ntm)).token)
    await claim_one(ntm)
    second = TaskWatch(ntm, task_id, last)
    await until(lambda: len(second.seen) == 2, "what is kept is told")
    assert (second.kinds, [each.gap for each in second.seen]) == (["queued", "running"], [True, False])
    await second.leave()
    beginning = TaskWatch(ntm, task_id, "0-0")
    await until(lambda: len(beginning.seen) == 2, "what is kept is told")
    assert [each.gap for each in beginning.seen] == [True, False]
    await beginning.leave()


async def test_task_without_events_is_reported_in_its_current_state(ntm: Ntm, admin: Client) -> None:
    task_id = (await submit_task(ntm)).task.node_task_id
    await admin.delete(f"trading_flow:{{s0}}:task_events:{task_id}")
    watch, lost = TaskWatch(ntm, task_id), TaskWatch(ntm, task_id, "1-1")
    await until(lambda: watch.seen and lost.seen, "it is shown to both")
    assert (watch.seen[0].HasField("event"), watch.seen[0].gap, lost.seen[0].gap) == (False, False, True)
    await complete(ntm, (await claim_one(ntm)).token)
    await watch.over(), await lost.over()
    assert watch.kinds[1:] == lost.kinds[1:] == ["running", "completed"]


async def test_lost_subscriber_connection_loses_no_events(
    ntm: Ntm, worker: Callable[..., RawWorker], admin: Client
) -> None:
    async def killed() -> bool:
        return bool(await admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))

    task_id = (await submit_task(ntm)).task.node_task_id
    watch = TaskWatch(ntm, task_id)
    await until(lambda: watch.seen, "the task is shown")
    running = worker()
    await running.open()
    (given,) = await running.assigned()
    for progress in range(10, 60, 10):
        await until(killed, "the subscriber is there, and killed")
        await running.send(progress=[work_pb2.NodeTaskProgress(token=given.token, progress=progress)])
        await until(lambda p=progress: watch.seen[-1].event.progress == p, "the progress is told")
    await until(killed, "the subscriber is there, and killed")
    await running.complete(given.token)
    await watch.over()
    assert watch.kinds == ["queued", "running", *["progress"] * 5, "completed"]


async def test_stop_is_reported_and_skipped_task_has_its_reason(ntm: Ntm) -> None:
    task_id = (await submit_task(ntm)).task.node_task_id
    given = await claim_one(ntm)
    watch = TaskWatch(ntm, task_id)
    await until(lambda: watch.kinds == ["running"], "the newest event is shown")
    await ntm.stub.CancelTask(pb2.CancelTaskRequest(task_id=task_id, user_id="ann", reason="wrong prices"))
    await until(lambda: watch.kinds == ["running", "stopping"], "the stop is shown")
    failures = [work_pb2.NodeTaskFailure(token=given.token, error=ERROR, terminated=True)]
    await ntm.stub.FailNodeTasks(service_pb2.FailNodeTasksRequest(worker_id="u1", failures=failures))
    _, stopping, terminated = await watch.over()
    assert (stopping.event.stop.reason, stopping.task.stop.by) == ("wrong prices", "ann")
    assert (word(terminated.event), terminated.event.reason) == ("terminated", "wrong prices")
    waiting = (await submit_task(ntm)).task.node_task_id
    await ntm.stub.CancelTask(pb2.CancelTaskRequest(task_id=waiting, user_id="ann", reason="too late"))
    (end,) = await TaskWatch(ntm, waiting).over()
    assert (word(end.event), end.event.reason, end.task.reason) == ("skipped", "too late", "too late")


@pytest.mark.parametrize("after", ["yesterday", "1", "-", "0-0-0"])
async def test_invalid_event_position_is_refused(ntm: Ntm, after: str) -> None:
    task_id = (await submit_task(ntm)).task.node_task_id
    request = pb2.WatchTaskRequest(task_id=task_id, user_id="ann", after_event_id=after)
    call: Any = ntm.stub.WatchTask(request)
    assert await refused(call.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", ["after_event_id"])


async def test_task_of_another_user_cannot_be_watched(ntm: Ntm) -> None:
    task_id = (await submit_task(ntm, user_id="bob")).task.node_task_id
    for after in ("", "0-0"):
        request = pb2.WatchTaskRequest(task_id=task_id, user_id="ann", after_event_id=after)
        call: Any = ntm.stub.WatchTask(request)
        assert (await refused(call.read()))[:2] == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")
