"""Events of node tasks of flows are kept from the first watch on: in order, resumable, and only for the owner."""

from typing import Any

import grpc
import pytest

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.rpc.node_task_manager.test_ad_hoc import refused
from tests.rpc.node_task_manager.test_calls import complete
from tests.rpc.node_task_manager.test_task_events import TaskWatch, claim_one
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import batch_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as service_pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.server.redis.client import Client

CHAIN = plan(("a", "out", "b", "in"))
A, B = "flow:0:0:a", "flow:0:0:b"


def watch(ntm: Ntm, task_id: str, after: str = "") -> TaskWatch:
    """Watch a node task as its owner."""
    return TaskWatch(ntm, task_id, after, "default")


async def streams(admin: Client) -> list[str]:
    """Return the ids of the node tasks whose events are kept."""
    prefix = b"trading_flow:{s0}:task_events:"
    keys: list[bytes] = await admin.execute_command("KEYS", prefix + b"*")
    return sorted(key.removeprefix(prefix).decode() for key in keys)


async def test_unreached_node_is_followed_to_its_end(ntm: Ntm, admin: Client) -> None:
    await ntm.submit(CHAIN)
    seen = watch(ntm, B)
    await until(lambda: len(seen.seen) == 1, "it is shown as it is")
    assert (seen.seen[0].HasField("event"), seen.seen[0].gap) == (False, False)
    assert seen.seen[0].task.status == node_task_pb2.NODE_TASK_STATUS_REGISTERED
    await complete(ntm, (await claim_one(ntm)).token)
    given = await claim_one(ntm)
    progress = [work_pb2.NodeTaskProgress(token=given.token, progress=40, message="so far")]
    await ntm.stub.ReportNodeTasks(service_pb2.ReportNodeTasksRequest(worker_id="u1", progress=progress))
    await until(lambda: seen.kinds[-1] == "progress", "the progress is told")
    await complete(ntm, given.token)
    _, *later = await seen.over()
    assert seen.kinds[1:] == ["queued", "running", "progress", "completed"]
    assert [each.event.attempt for each in later] == [0, 1, 1, 1]
    assert (later[2].task.progress, later[2].event.message, later[3].task.outputs[0].value_json) == (40, "so far", "1")
    assert await streams(admin) == [B], "nothing is kept of nodes that nobody watches"
    assert await admin.pttl(f"trading_flow:{{s0}}:task_events:{B}") > 0
    again = watch(ntm, B, "0-0")
    assert [each.event for each in await again.over()] == [each.event for each in later]


async def test_returning_watcher_resumes_after_last_event_across_a_restart(start: Start) -> None:
    ntm = await start()
    await ntm.submit(CHAIN)
    first = watch(ntm, A)
    await until(lambda: first.seen, "it is shown as it is")
    given = await claim_one(ntm)
    await until(lambda: first.kinds[-1] == "running", "it runs")
    last = await first.leave()
    await ntm.server.stop()
    again = await start()
    await complete(again, given.token)
    second = watch(again, A, last)
    assert [(each.gap, each.event.attempt) for each in await second.over()] == [(False, 1)]
    assert second.kinds == ["completed"]


async def test_events_before_the_first_watch_are_a_gap(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    given = await claim_one(ntm)
    late = watch(ntm, A, "0-0")
    await until(lambda: late.seen, "it is shown as it is")
    assert (late.seen[0].gap, late.seen[0].HasField("event"), late.seen[0].task.attempt) == (True, False, 1)
    await complete(ntm, given.token)
    assert [change.gap for change in await late.over()] == [True, False]
    await complete(ntm, (await claim_one(ntm)).token)
    (end,) = await watch(ntm, B, "0-0").over()
    assert (end.gap, end.task.status) == (True, node_task_pb2.NODE_TASK_STATUS_COMPLETED)
    (end,) = await watch(ntm, B).over()
    assert (end.gap, end.task.status) == (False, node_task_pb2.NODE_TASK_STATUS_COMPLETED)


async def test_at_most_100_open_node_tasks_of_a_component_are_watched(ntm: Ntm) -> None:
    await ntm.submit(plan(nodes=" ".join(f"n{at}" for at in range(101))))
    watches = [watch(ntm, f"flow:0:0:n{at}") for at in range(100)]
    await until(lambda: all(each.seen for each in watches), "a hundred are watched")
    call: Any = ntm.stub.WatchTask(pb2.WatchTaskRequest(task_id="flow:0:0:n100", user_id="default"))
    assert (await refused(call.read()))[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    await complete(ntm, (await claim_one(ntm)).token)
    one_more = watch(ntm, "flow:0:0:n100")
    await until(lambda: one_more.seen, "one has ended, so another is watched")
    for each in (*watches, one_more):
        await each.leave()


async def test_purging_a_flow_removes_its_events(ntm: Ntm, admin: Client) -> None:
    await ntm.submit(CHAIN)
    seen = watch(ntm, A)
    await until(lambda: seen.seen, "it is shown as it is")
    await claim_one(ntm)
    await until(lambda: seen.kinds[-1] == "running", "it runs")
    assert await streams(admin) == [A]
    await seen.leave()
    await ntm.stub.PurgeFlow(service_pb2.PurgeFlowRequest(flow_id="flow", user_id="default"))
    assert await streams(admin) == []
    call: Any = ntm.stub.WatchTask(pb2.WatchTaskRequest(task_id=A, user_id="default"))
    assert (await refused(call.read()))[:2] == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")


@pytest.mark.parametrize("task_id", ["flow:0:0:z", "flow:1:0:a", "flow:0:0:a:3"])
async def test_unknown_node_task_is_not_found(ntm: Ntm, task_id: str) -> None:
    await ntm.submit(CHAIN)
    call: Any = ntm.stub.WatchTask(pb2.WatchTaskRequest(task_id=task_id, user_id="default"))
    assert (await refused(call.read()))[:2] == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")


async def test_node_of_another_users_flow_cannot_be_watched(ntm: Ntm, admin: Client) -> None:
    await ntm.submit(CHAIN)
    for after in ("", "0-0"):
        call: Any = ntm.stub.WatchTask(pb2.WatchTaskRequest(task_id=A, user_id="ann", after_event_id=after))
        assert (await refused(call.read()))[:2] == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")
    await claim_one(ntm)
    assert await streams(admin) == [], "nor does it leave a mark"


@pytest.mark.parametrize("task_id", ["batch:b:0", "flow:0:0", "flow:0:0:a:b", ""])
async def test_an_id_that_cannot_be_watched_is_refused(ntm: Ntm, task_id: str) -> None:
    call: Any = ntm.stub.WatchTask(pb2.WatchTaskRequest(task_id=task_id, user_id="default"))
    assert await refused(call.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", ["task_id"])
