"""Unknown names: a misspelt name is answered with the nearest one."""

from collections.abc import Awaitable

import grpc

from tests.rpc.scheduler.conftest import Client, Peers
from tests.rpc.scheduler.errors import refused
from tests.servers import RedisServer
from tradewind.api.scheduler.v1 import backfill_pb2, memory_pb2, revision_pb2, stop_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.server.partitions import partition_of

NOT_FOUND = grpc.StatusCode.NOT_FOUND


async def test_unknown_flow_suggests_the_nearest_name(scheduler: Client) -> None:
    for flow_id in ("shop", "prices", "alpha"):
        await scheduler.register(flow_id)
    stub = scheduler.stub
    calls: list[Awaitable[object]] = [
        stub.GetFlow(pb2.GetFlowRequest(flow_id="shopp")),
        stub.StartFlow(pb2.StartFlowRequest(flow_id="shopp")),
        stub.DeleteFlow(pb2.DeleteFlowRequest(flow_id="shopp")),
        stub.RunFlow(pb2.RunFlowRequest(flow_id="shopp")),
        stub.GetCycle(pb2.GetCycleRequest(flow_id="shopp")),
        stub.ListLogs(pb2.ListLogsRequest(flow_id="shopp")),
        stub.GetMemory(memory_pb2.GetMemoryRequest(scope=memory_pb2.MemoryScope(flow_id="shopp"))),
        stub.ListBackfills(backfill_pb2.ListBackfillsRequest(flow_id="shopp")),
        stub.ListRevisions(revision_pb2.ListRevisionsRequest(flow_id="shopp")),
        stub.RollBackFlow(revision_pb2.RollBackFlowRequest(flow_id="shopp", revision=1)),
    ]
    for call in calls:
        refusal = await refused(call, NOT_FOUND, "FLOW_NOT_FOUND")
        assert refusal.message == 'no flow "shopp"; did you mean "shop"?'
        assert refusal.metadata["flow_id"] == "shopp"
    far = await refused(stub.GetFlow(pb2.GetFlowRequest(flow_id="zebra")), NOT_FOUND, "FLOW_NOT_FOUND")
    assert far.message == 'no flow "zebra"'


async def test_flow_whose_record_is_lost_is_not_suggested_for_itself(scheduler: Client, embedded: RedisServer) -> None:
    await scheduler.register("shop")
    await scheduler.register("shops")
    await embedded.connect().delete(f"trading_flow:{{f{partition_of('shop')}}}:flow:shop")
    refusal = await refused(scheduler.stub.GetFlow(pb2.GetFlowRequest(flow_id="shop")), NOT_FOUND, "FLOW_NOT_FOUND")
    assert refusal.message == 'no flow "shop"; did you mean "shops"?'


async def test_unknown_node_suggests_the_nearest_name(scheduler: Client, peers: Peers) -> None:
    peers.node_tasks.automatic = False
    await scheduler.register("f", "average", "report")
    await scheduler.run(wait=0)
    call = scheduler.stub.StopNode(stop_pb2.StopNodeRequest(flow_id="f", node_id="averag"))
    refusal = await refused(call, NOT_FOUND, "NODE_TASK_NOT_FOUND")
    assert refusal.message == 'no node task "f:0:0:averag"; did you mean "average"?'


async def test_unknown_node_of_a_rerun_names_the_revision_of_the_cycle(scheduler: Client) -> None:
    await scheduler.register("f", "average", "report")
    await scheduler.run()
    await scheduler.register("f", "averages", "report")
    call = scheduler.stub.RerunCycle(pb2.RerunCycleRequest(flow_id="f", from_node_ids=["averages"]))
    refusal = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    expected = 'revision 1 of the flow, with which the cycle began, has no node "averages"; did you mean "average"?'
    assert refusal.violations == [("from_node_ids[0]", expected)]
