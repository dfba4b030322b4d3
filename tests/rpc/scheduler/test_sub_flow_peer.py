"""The scheduler's calls about nodes that wait for other flows, to a node task manager that the test plays."""

from collections.abc import AsyncIterator

import grpc
import pytest_asyncio

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as ntm_grpc
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.node_task_manager.v1 import sub_flow_pb2 as pb2
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import SubFlowReport, SubFlowWait
from tradewind.scheduler.peers.sub_flows import SubFlowNodesPeer
from tradewind.server.channels import open_channel
from tradewind.server.interception import Context

PARENT, CHILD = RunName("parent", 1, 0), RunName("child", 7, 0)


class Waits(ntm_grpc.NodeTaskManagerServiceServicer):
    """Has a page of waits for each node that waits; notes what is asked and reported."""

    def __init__(self, *waits: pb2.SubFlowWait) -> None:
        self.pages = waits
        self.asked: list[list[str]] = []
        self.reports: list[pb2.SubFlowReport] = []

    async def ListSubFlowWaits(
        self, request: pb2.ListSubFlowWaitsRequest, context: Context
    ) -> pb2.ListSubFlowWaitsResponse:
        self.asked.append(list(request.node_task_ids))
        at = int(request.page_token or 0)
        following = str(at + 1) if at + 1 < len(self.pages) else ""
        return pb2.ListSubFlowWaitsResponse(waits=[self.pages[at]], next_page_token=following)

    async def ReportSubFlows(self, request: pb2.ReportSubFlowsRequest, context: Context) -> pb2.ReportSubFlowsResponse:
        self.reports += request.reports
        return pb2.ReportSubFlowsResponse(awaited=[report.final for report in request.reports])


FIRST = pb2.SubFlowWait(
    node_task_id=f"{PARENT}:a:b", run_id="r", attempt=2, flow_id="child", inputs_json="{}", input_bytes=2
)
SECOND = pb2.SubFlowWait(
    node_task_id=f"{PARENT}:c",
    run_id="r",
    attempt=1,
    flow_id="child",
    cycle=node_task_pb2.SubFlowCycle(flow_id="child", cycle=7),
    input_bytes=9,
)


@pytest_asyncio.fixture
async def waits() -> Waits:
    return Waits(FIRST, SECOND)  # type: ignore[abstract]  # it gets no other calls


@pytest_asyncio.fixture
async def peer(waits: Waits) -> AsyncIterator[SubFlowNodesPeer]:
    server = grpc.aio.server()
    ntm_grpc.add_NodeTaskManagerServiceServicer_to_server(waits, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield SubFlowNodesPeer(channel)
    await server.stop(None)


async def test_waits_of_all_pages_are_found(peer: SubFlowNodesPeer) -> None:
    assert [wait async for wait in peer.waits(PARENT, "ann")] == [
        SubFlowWait("a:b", "r", 2, "child", None, "{}", 2),
        SubFlowWait("c", "r", 1, "child", CHILD, "", 9),
    ]


async def test_inputs_are_asked_for_by_node(peer: SubFlowNodesPeer, waits: Waits) -> None:
    assert [wait.node for wait in await peer.inputs(PARENT, "ann", ["a:b", "c"])] == ["a:b"]
    assert waits.asked == [["parent:1:0:a:b", "parent:1:0:c"]]


async def test_reports_say_how_far_a_cycle_is(peer: SubFlowNodesPeer, waits: Waits) -> None:
    parent = Parent(PARENT, "r", "c", 3)
    begun = SubFlowReport(parent, "ann", CHILD)
    completed = SubFlowReport(parent, "ann", CHILD, output_json="1")
    failed = SubFlowReport(
        parent, "ann", None, output_json="", error_code="FLOW_GONE", error="no such flow", final=True
    )
    assert await peer.report([begun, completed, failed]) == [False, False, True]
    assert [(each.HasField("cycle"), each.WhichOneof("end"), each.attempt) for each in waits.reports] == [
        (True, None, 3),
        (True, "output_json", 3),
        (False, "error", 3),
    ]
    assert {each.node_task_id for each in waits.reports} == {"parent:1:0:c"}
