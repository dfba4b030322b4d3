"""The part of NodeTaskManagerService for node tasks that wait for cycles of other flows."""

from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.api.node_task_manager.v1 import sub_flow_pb2 as pb2
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.sub_flow import MAX_AT_ONCE
from tradewind.node_task_manager.rpc import checks, sub_flow_mapping
from tradewind.node_task_manager.use_cases.node_task_records import ANSWER_BYTES
from tradewind.node_task_manager.use_cases.sub_flows import SubFlows
from tradewind.server.all_faults import every
from tradewind.server.identifiers import require_identifiers
from tradewind.server.interception import Context
from tradewind.server.paging import page_position, page_token

_PAGE = 1000


@dataclass(eq=False, kw_only=True)
class SubFlowHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """The scheduler's questions and reports about such node tasks."""

    sub_flows: SubFlows

    async def ListSubFlowWaits(
        self, request: pb2.ListSubFlowWaitsRequest, context: Context
    ) -> pb2.ListSubFlowWaitsResponse:
        _, _, after = every(
            lambda: require_identifiers(flow_id=request.flow_id, user_id=request.user_id),
            lambda: checks.at_most("node_task_ids", request.node_task_ids, MAX_AT_ONCE),
            lambda: page_position(request.page_token, int),
        )
        run = RunName(request.flow_id, request.cycle, request.run)
        following = 0
        if request.node_task_ids:
            found = await self.sub_flows.inputs(run, request.user_id, request.node_task_ids, ANSWER_BYTES)
        else:
            found, following = await self.sub_flows.waits(run, request.user_id, after or 0, _PAGE)
        return pb2.ListSubFlowWaitsResponse(
            waits=map(sub_flow_mapping.sub_flow_wait, found), next_page_token=page_token(following or None)
        )

    async def ReportSubFlows(self, request: pb2.ReportSubFlowsRequest, context: Context) -> pb2.ReportSubFlowsResponse:
        return pb2.ReportSubFlowsResponse(awaited=await self.sub_flows.report(sub_flow_mapping.reports(request)))
