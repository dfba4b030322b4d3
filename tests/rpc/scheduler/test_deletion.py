"""Deleting flows: nothing of them is left, whatever happens meanwhile."""

import asyncio

import grpc

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.rpc.scheduler.errors import refused
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.scheduler.v1 import backfill_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.server.partitions import partition_of


def deletion(wait_s: int = 10) -> pb2.DeleteFlowRequest:
    request = pb2.DeleteFlowRequest(flow_id="f")
    if wait_s:
        request.wait.FromSeconds(wait_s)
    return request


async def left_of(flow_id: str, store: RedisServer) -> list[str]:
    """Return the keys that belong to a flow or hold nothing else."""
    tag = f"trading_flow:{{f{partition_of(flow_id)}}}:"
    keys = [key.removeprefix(tag) for key in await store.keys() if key.startswith(tag)]
    return [key for key in keys if key not in ("owner", "replicas", "data_version")]


async def test_deleted_flow_leaves_only_a_tombstone(scheduler: Client, peers: Peers, embedded: RedisServer) -> None:
    await scheduler.register("f", "a", "b", request_id="r0")
    await scheduler.start()
    for number in range(3):
        await scheduler.run(request_id=f"r{number + 1}")
    await scheduler.register("f", "a", "c")
    peers.node_tasks.automatic = False
    await scheduler.run(wait=0)
    peers.node_tasks.purge_steps = 3
    response = await scheduler.stub.DeleteFlow(deletion())
    assert response.done
    assert peers.node_tasks.purged == ["f"] * 3
    assert "f" not in peers.triggers.triggers
    assert await left_of("f", embedded) == ["tombstone:f"]
    await refused(scheduler.flow(), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")
    await refused(scheduler.run(), grpc.StatusCode.NOT_FOUND, "FLOW_NOT_FOUND")


async def test_repeated_request_never_gets_a_cycle_of_a_later_flow(start: Start, peers: Peers) -> None:
    scheduler = await start(scheduler_settle_seconds=0)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await scheduler.register("f", keep_cycles=1)
    for number in range(3):
        await scheduler.run(request_id=f"day-{number}")
    assert (await scheduler.stub.DeleteFlow(deletion())).done
    await scheduler.register("f")
    assert (await scheduler.run(request_id="other")).cycle == 0
    await refused(scheduler.run(request_id="day-0"), grpc.StatusCode.NOT_FOUND, "CYCLE_NOT_FOUND")


async def test_late_event_does_not_recreate_a_deleted_flow(
    scheduler: Client, peers: Peers, embedded: RedisServer
) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    await scheduler.run(wait=0)
    run = peers.node_tasks.runs["f", 0, 0]
    await scheduler.stub.DeleteFlow(deletion())
    peers.node_tasks.runs[run.key] = run
    await peers.node_tasks.finish(run.key)
    await until(lambda: not peers.node_tasks.unacknowledged, "the late event is acknowledged")
    assert await left_of("f", embedded) == ["tombstone:f"]


async def test_deletion_without_wait_answers_at_once_and_continues(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await peers.node_tasks.go_down()
    response = await scheduler.stub.DeleteFlow(deletion(wait_s=0))
    assert (response.done, response.HasField("done")) == (False, True)
    flow = await scheduler.flow()
    assert flow.status == flow_pb2.FLOW_STATUS_DELETING
    await refused(scheduler.start(), grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING")
    await refused(scheduler.stop(), grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING")
    await refused(scheduler.run(), grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING")
    await refused(scheduler.register(), grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING")
    past = backfill_pb2.BackfillFlowRequest(flow_id="f")
    past.start.FromSeconds(1_600_000_000)
    past.end.FromSeconds(1_600_000_300)
    await refused(scheduler.stub.BackfillFlow(past), grpc.StatusCode.FAILED_PRECONDITION, "FLOW_DELETING")
    await peers.node_tasks.come_up()
    assert (await scheduler.stub.DeleteFlow(deletion())).done


async def test_waiting_caller_of_a_deletion_outlasts_a_restart_of_the_node_task_manager(
    scheduler: Client, peers: Peers
) -> None:
    await scheduler.register()
    await peers.node_tasks.go_down()
    deleting = asyncio.create_task(_delete(scheduler, wait_s=30))
    await until(lambda: peers.node_tasks.refused_purges, "the node task manager was asked in vain")
    await peers.node_tasks.come_up()
    assert (await deleting).done


async def test_waiting_caller_of_a_deletion_is_sent_elsewhere_when_the_scheduler_leaves(
    start: Start, peers: Peers
) -> None:
    scheduler = await start()
    await scheduler.register()
    await peers.node_tasks.go_down()
    deleting = asyncio.create_task(refused(_delete(scheduler, 600), grpc.StatusCode.UNAVAILABLE, "DRAINING"))
    await until(lambda: peers.node_tasks.refused_purges, "the node task manager was asked in vain")
    await scheduler.server.stop()
    await deleting


async def _delete(scheduler: Client, wait_s: int) -> pb2.DeleteFlowResponse:
    return await scheduler.stub.DeleteFlow(deletion(wait_s=wait_s))


async def test_impossible_wait_for_a_deletion_is_refused(scheduler: Client) -> None:
    await scheduler.register()
    request = deletion(wait_s=-1)
    request.flow_id = "f g"
    error = await refused(scheduler.stub.DeleteFlow(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert sorted(path for path, _ in error.violations) == ["flow_id", "wait"]
    assert (await scheduler.flow()).status != flow_pb2.FLOW_STATUS_DELETING


async def test_deletion_is_finished_by_the_next_scheduler(start: Start, peers: Peers, embedded: RedisServer) -> None:
    first = await start()
    await first.register()
    await first.run()
    await peers.node_tasks.go_down()
    await first.stub.DeleteFlow(deletion(wait_s=0))
    await first.server.stop()
    await peers.node_tasks.come_up()
    await start()

    async def gone() -> bool:
        return await left_of("f", embedded) == ["tombstone:f"]

    await until(gone, "the next scheduler has finished the deletion")


async def test_flow_registered_after_deletion_starts_from_cycle_0(scheduler: Client, peers: Peers) -> None:
    await scheduler.register()
    await scheduler.start()
    await scheduler.run()
    before = peers.triggers.epochs["f"]
    await scheduler.stub.DeleteFlow(deletion())
    flow = await scheduler.register()
    assert (flow.revision, flow.last_cycle) == (1, -1)
    await scheduler.start()
    assert peers.triggers.triggers["f"].epoch > before
    assert (await scheduler.run()).cycle == 0


async def test_caller_waiting_for_a_cycle_of_a_deleted_flow_is_answered(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register()
    waiting = asyncio.ensure_future(scheduler.run(wait=60))
    await until(lambda: ("f", 0, 0) in peers.node_tasks.runs, "the cycle runs")
    await scheduler.stub.DeleteFlow(deletion())
    assert (await asyncio.wait_for(waiting, 10)).cycle == 0
