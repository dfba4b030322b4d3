"""The calls besides the Work stream: submissions, reads, unary work, events."""

import time
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.server.paging import page_token
from tradewind.server.partitions import partition_of, shard_of
from tradewind.server.redis.client import Client

CHAIN = plan(("a", "out", "b", "price"))


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the ErrorInfo reason of an error."""
    info = error_details_pb2.ErrorInfo()
    rpc_status.from_call(error).details[0].Unpack(info)  # type: ignore[arg-type]
    return info.reason


async def claim(ntm: Ntm, limit: int = 10) -> list[work_pb2.NodeTaskAssignment]:
    request = pb2.ClaimNodeTasksRequest(worker_id="u1", node_types=["noop"], limit=limit)
    return list((await ntm.stub.ClaimNodeTasks(request)).assignments)


async def complete(ntm: Ntm, *tokens: str) -> Any:
    done = [work_pb2.NodeTaskCompletion(token=t, outputs=[{"handle": "out", "value_json": "1"}]) for t in tokens]  # type: ignore[list-item]
    return await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=done))


async def next_of(call: Any) -> pb2.ReceiveEventsResponse:
    """Read the next message of a stream of events."""
    message = await call.read()
    assert isinstance(message, pb2.ReceiveEventsResponse)
    return message


async def test_a_client_without_streams_claims_renews_completes_and_fails(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    (a,) = await claim(ntm)
    renewed = await ntm.stub.RenewLeases(pb2.RenewLeasesRequest(worker_id="u1", tokens=[a.token]))
    assert (len(renewed.losses), renewed.lease_deadline.seconds > 0) == (0, True)
    assert not (await complete(ntm, a.token)).losses
    assert not (await complete(ntm, a.token)).losses
    (b,) = await claim(ntm)
    assert b.inputs[0].values_json == ["1"]
    error = node_task_pb2.NodeTaskError(code="NODE_ERROR", message="it broke")
    await ntm.stub.FailNodeTasks(
        pb2.FailNodeTasksRequest(worker_id="u1", failures=[work_pb2.NodeTaskFailure(token=b.token, error=error)])
    )
    assert (await ntm.node("b")).error.message == "it broke"


async def test_single_refused_completion_is_an_error_and_several_are_losses(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    (a,) = await claim(ntm)
    stale = a.token[:-3] + "zzz"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await complete(ntm, stale)
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST")
    answer = await complete(ntm, stale, a.token)
    assert [loss.token for loss in answer.losses] == [stale]


async def test_each_submitted_run_is_answered_separately(ntm: Ntm) -> None:
    run = component_pb2.RunSubmission(flow_id="f", run_id="r", user_id="u")
    part = component_pb2.ComponentSubmission(component_id="0", plan_digest=CHAIN.digest)
    run.components.append(part)
    unknown = component_pb2.RunSubmission(flow_id="g", run_id="r", user_id="u")
    unknown.components.add(component_id="0", plan_digest="nobody-knows")
    conflict = component_pb2.RunSubmission(flow_id="f", run_id="other", user_id="u", components=[part])
    request = pb2.SubmitComponentsRequest(runs=[run, unknown, run, conflict], plans=[CHAIN])
    results = (await ntm.stub.SubmitComponents(request)).results
    assert [each.outcome for each in results] == [
        component_pb2.SUBMIT_OUTCOME_ACCEPTED,
        component_pb2.SUBMIT_OUTCOME_PLAN_UNKNOWN,
        component_pb2.SUBMIT_OUTCOME_DUPLICATE,
        component_pb2.SUBMIT_OUTCOME_RUN_CONFLICT,
    ]
    assert (list(results[1].unknown_plans), results[3].existing_run_id) == (["nobody-knows"], "r")


async def test_invalid_submission_reports_all_faults_at_once(ntm: Ntm) -> None:
    run = component_pb2.RunSubmission(flow_id="a b", run_id="", user_id="u", cycle=-1, inputs_json="[1]")
    bad = plan(nodes="x", digest="d")
    bad.edges.add(source=0, target=7)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ntm.stub.SubmitComponents(pb2.SubmitComponentsRequest(runs=[run], plans=[bad]))
    request = error_details_pb2.BadRequest()
    rpc_status.from_call(caught.value).details[1].Unpack(request)  # type: ignore[arg-type]
    assert [violation.field for violation in request.field_violations] == [
        "runs[0].flow_id",
        "runs[0].run_id",
        "runs[0].cycle",
        "runs[0].components",
        "runs[0].inputs_json",
        "plans[0].edges[0]",
    ]


async def test_node_tasks_are_listed_in_flow_order_with_their_signals(ntm: Ntm) -> None:
    await ntm.submit(plan(("a", "out", "b", "x"), ("a", "no", "c", "y"), digest="p1"), plan(nodes="z", digest="p2"))
    taken = {each.node_id: each for each in await claim(ntm)}
    await complete(ntm, taken["a"].token)

    async def page(token: str = "", size: int = 3) -> pb2.ListNodeTasksResponse:
        return await ntm.stub.ListNodeTasks(
            pb2.ListNodeTasksRequest(
                flow_id="flow", user_id="default", include_signals=True, page_size=size, page_token=token
            )
        )

    first = await page()
    assert [(task.node_id, task.component_id) for task in first.node_tasks] == [("a", "0"), ("b", "0"), ("c", "0")]
    assert [task.status for task in first.node_tasks] == [
        node_task_pb2.NODE_TASK_STATUS_COMPLETED,
        node_task_pb2.NODE_TASK_STATUS_PENDING,
        node_task_pb2.NODE_TASK_STATUS_SKIPPED,
    ]
    assert [(s.target, s.status) for s in first.signals] == [
        ("b", node_task_pb2.SIGNAL_STATUS_LIVE),
        ("c", node_task_pb2.SIGNAL_STATUS_DEAD),
    ]
    last = await page(first.next_page_token)
    assert ([task.node_id for task in last.node_tasks], last.next_page_token) == (["z"], "")
    with pytest.raises(grpc.aio.AioRpcError, match="page_token"):
        await page("rubbish")


async def test_forged_item_page_token_is_not_a_server_error(ntm: Ntm) -> None:
    mapped = plan(("a", "out", "m", "in"))
    mapped.nodes[1].fan_out.CopyFrom(component_pb2.FanOut(handle="in"))
    await ntm.submit(mapped)
    (a,) = await claim(ntm)
    done = work_pb2.NodeTaskCompletion(token=a.token, outputs=[{"handle": "out", "value_json": "[1,2,3]"}])  # type: ignore[list-item]
    await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done]))

    async def split() -> bool:
        return (await ntm.node("m")).HasField("items")

    await until(split, "the list is split")
    request = pb2.ListNodeTasksRequest(flow_id="flow", user_id="default", items_of="m", page_token=page_token(-2))
    assert [each.item for each in (await ntm.stub.ListNodeTasks(request)).node_tasks] == [0, 1, 2]
    request.items_of = "a"
    with pytest.raises(grpc.aio.AioRpcError, match='no mapped node "flow:0:0:a"') as caught:
        await ntm.stub.ListNodeTasks(request)
    assert reason_of(caught.value) == "NODE_TASK_NOT_FOUND"


async def test_unreached_node_is_registered(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    task = await ntm.node("b")
    assert (task.status, task.run_id) == (node_task_pb2.NODE_TASK_STATUS_REGISTERED, "r0")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ntm.node("nobody")
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.NOT_FOUND, "NODE_TASK_NOT_FOUND")


async def test_outputs_are_read_in_bulk_up_to_2_mib(ntm: Ntm) -> None:
    await ntm.submit(plan(nodes="a b c d"))
    large = '"' + "x" * 900_000 + '"'
    for each in await claim(ntm):
        done = work_pb2.NodeTaskCompletion(token=each.token, outputs=[{"handle": "out", "value_json": large}])  # type: ignore[list-item]
        await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done]))
    wanted = [pb2.NodeTaskReference(node_task_id=f"flow:0:0:{name}", user_id="default") for name in "abcdx"]
    first = (await ntm.stub.GetNodeOutputs(pb2.GetNodeOutputsRequest(node_tasks=wanted))).node_tasks
    assert [each.node_task_id for each in first] == ["flow:0:0:a", "flow:0:0:b"]
    assert first[0].outputs[0].value_json == large
    rest = (await ntm.stub.GetNodeOutputs(pb2.GetNodeOutputsRequest(node_tasks=wanted[3:]))).node_tasks
    assert [(each.node_task_id, len(each.outputs)) for each in rest] == [("flow:0:0:d", 1), ("flow:0:0:x", 0)]


@pytest.mark.parametrize("letter", ["x", "\u4e2d"])
async def test_claims_are_limited_by_message_size(ntm: Ntm, letter: str) -> None:
    edges = [("a", "out", "d", "1"), ("b", "out", "d", "2"), ("a", "out", "e", "1"), ("b", "out", "e", "2")]
    await ntm.submit(plan(*edges, ("c", "out", "e", "3"), nodes="a b c"))
    large = '"' + letter * (960_000 // len(letter.encode())) + '"'
    for each in await claim(ntm):
        done = work_pb2.NodeTaskCompletion(token=each.token, outputs=[{"handle": "out", "value_json": large}])  # type: ignore[list-item]
        await ntm.stub.CompleteNodeTasks(pb2.CompleteNodeTasksRequest(worker_id="u1", completions=[done]))
    assert [[each.node_id for each in await claim(ntm)] for _ in range(3)] == [["d"], ["e"], []]


async def test_node_tasks_held_by_a_worker_are_listed(ntm: Ntm) -> None:
    await ntm.submit(CHAIN)
    await claim(ntm)
    held = (await ntm.stub.ListWorkerTasks(pb2.ListWorkerTasksRequest(worker_id="u1"))).node_tasks
    assert [(task.node_id, task.worker_id) for task in held] == [("a", "u1")]


async def test_pages_of_held_node_tasks_keep_their_order_across_renewals(start: Start) -> None:
    ntm = await start(node_task_manager_shards=2)
    users = ["bob", "ann"]
    assert [shard_of(user, 2) for user in users] == [0, 1]
    for user in users:
        await ntm.submit(plan(nodes="a b c"), flow_id=f"of-{user}", user_id=user)
    leases: list[work_pb2.NodeTaskAssignment] = []
    while len(leases) < 6:
        leases += await claim(ntm)
    request, found, sizes = pb2.ListWorkerTasksRequest(worker_id="u1", page_size=2), list[str](), list[int]()
    while request.page_token or not sizes:
        page = await ntm.stub.ListWorkerTasks(request)
        sizes.append(len(page.node_tasks))
        found += [task.node_task_id for task in page.node_tasks]
        request.page_token = page.next_page_token
        # The first task has the latest deadline after this.
        await ntm.stub.RenewLeases(pb2.RenewLeasesRequest(worker_id="u1", tokens=[leases[0].token]))
    assert sizes == [2, 2, 2]
    assert found == [f"of-{user}:0:0:{node}" for user in users for node in "abc"]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ntm.stub.ListWorkerTasks(pb2.ListWorkerTasksRequest(worker_id="u1", page_token="x"))
    assert reason_of(refused.value) == "INVALID_INPUT"


async def test_events_repeat_until_acknowledged_and_higher_epoch_takes_over(ntm: Ntm) -> None:
    everything = [pb2.EventSubscription(partition=at, epoch=1) for at in range(16)]
    first = ntm.stub.ReceiveEvents()
    await first.write(pb2.ReceiveEventsRequest(subscribe=everything))
    await ntm.submit(plan(nodes="a"))
    (a,) = await claim(ntm)
    await complete(ntm, a.token)
    (event,) = (await next_of(first)).events
    finished = event.component_finished.component
    assert (finished.flow_id, finished.run_id, finished.counts.completed) == ("flow", "r0", 1)

    second = ntm.stub.ReceiveEvents()
    newer = [pb2.EventSubscription(partition=event.partition, epoch=2)]
    await second.write(pb2.ReceiveEventsRequest(subscribe=newer))
    assert (await next_of(second)).events[0].event_id == event.event_id
    assert list((await next_of(first)).ended_partitions) == [event.partition]
    ack = pb2.EventAck(partition=event.partition, shard=event.shard, event_id=event.event_id)
    await second.write(pb2.ReceiveEventsRequest(acks=[ack]))
    await second.write(pb2.ReceiveEventsRequest(subscribe=everything[:1]))
    first.cancel()

    async def forgotten() -> bool:
        third = ntm.stub.ReceiveEvents()
        await third.write(
            pb2.ReceiveEventsRequest(subscribe=[pb2.EventSubscription(partition=event.partition, epoch=3)])
        )
        await ntm.submit(plan(nodes="a"), cycle=1)
        for each in await claim(ntm):
            await complete(ntm, each.token)
        (latest,) = (await next_of(third)).events[-1:]
        third.cancel()
        return bool(latest.event_id != event.event_id)

    await until(forgotten, "the acknowledged event does not come again")
    second.cancel()


@pytest.mark.parametrize(("left_s", "kept_s"), [(48 * 3600, 49 * 3600), (-60, 3600), (None, 8 * 24 * 3600)])
async def test_stop_mark_outlives_cycle_deadline(ntm: Ntm, admin: Client, left_s: int | None, kept_s: int) -> None:
    """By an hour; without a deadline it stays for as long as records of runs are kept at most."""
    stop = pb2.StopComponentRequest(flow_id="flow", run_id="r0", user_id="default", reason="enough")
    if left_s is not None:
        stop.deadline.CopyFrom(Timestamp(seconds=int(time.time()) + left_s))
    await ntm.stub.StopComponent(stop)
    assert kept_s - 60 < await admin.pttl("trading_flow:{s0}:stop:flow:0:0") / 1000 <= kept_s


async def test_purging_a_flow_leaves_nothing_but_its_tombstone(ntm: Ntm, embedded: Any) -> None:
    await ntm.submit(CHAIN)
    await claim(ntm)
    done = False
    while not done:
        done = (await ntm.stub.PurgeFlow(pb2.PurgeFlowRequest(flow_id="flow", user_id="default"))).done
    left = [key for key in await embedded.keys() if ":flow" in key]
    assert left == ["trading_flow:{s0}:purged:flow"]
    assert (await ntm.submit(CHAIN)).reason == "FLOW_DELETING"


async def test_purging_a_flow_removes_runs_of_all_its_owners(start: Start) -> None:
    ntm = await start(node_task_manager_shards=2)
    for cycle, user in enumerate(("bob", "ann")):
        await ntm.submit(CHAIN, cycle=cycle, run_id=f"r{cycle}", user_id=user)
    runs = pb2.GetComponentsRequest(
        runs=[
            pb2.RunReference(flow_id="flow", cycle=cycle, user_id=user, component_ids=["0"])
            for cycle, user in enumerate(("bob", "ann"))
        ]
    )
    assert len((await ntm.stub.GetComponents(runs)).components) == 2
    answer = pb2.PurgeFlowResponse()
    while not answer.done:
        answer = await ntm.stub.PurgeFlow(pb2.PurgeFlowRequest(flow_id="flow", user_id="ann"))
    assert not (await ntm.stub.GetComponents(runs)).components


async def test_users_are_spread_over_shards_and_one_stream_serves_all(  # type: ignore[no-untyped-def]
    start: Start, worker, embedded: RedisServer
) -> None:
    # The node task manager of `worker` has noted that there is one shard.
    await embedded.flush()
    ntm = await start(node_task_manager_shards=3)
    w = worker(at=ntm)
    await w.open()
    for at in range(6):
        await ntm.submit(CHAIN, flow_id=f"flow{at}", user_id=f"user{at}")
    taken = list(await w.assigned(6))
    assert {each.token.split("~")[0] for each in taken} == {"0", "1", "2"}
    for each in taken:
        await w.complete(each.token, out="1")
    await w.assigned(12)


async def test_scheduler_is_asked_about_open_components_when_the_store_was_away(start: Start, admin: Client) -> None:
    ntm = await start(node_task_manager_clean_seconds=0.2)
    await ntm.submit(CHAIN, cycle=7)
    stream = ntm.stub.ReceiveEvents()
    partition = partition_of("flow")
    await stream.write(pb2.ReceiveEventsRequest(subscribe=[pb2.EventSubscription(partition=partition, epoch=1)]))
    await admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    (event,) = (await next_of(stream)).events
    found = event.component_open.component
    assert (event.WhichOneof("kind"), event.partition, event.shard) == ("component_open", partition, 0)
    assert (found.flow_id, found.cycle, found.run, found.run_id, found.component_id) == ("flow", 7, 0, "r0", "0")
    assert (found.status, event.component_open.user_id) == (component_pb2.COMPONENT_STATUS_RUNNING, "default")
    assert abs(found.submitted_at.seconds - time.time()) < 60
    stream.cancel()
