"""Nodes that wait for cycles of other flows: the node task manager's part of it, over gRPC."""

from collections.abc import AsyncIterator, Sequence

import grpc

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.node_task_manager.v1 import sub_flow_pb2 as pb2
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import SubFlowReport, SubFlowWait
from tradewind.scheduler.peers.calls import calling
from tradewind.scheduler.peers.event_stream import run_name_of
from tradewind.scheduler.peers.node_task_manager import NAME

_CALL_S = 10.0


class SubFlowNodesPeer:
    """Implements SubFlowNodes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = NodeTaskManagerServiceStub(channel)

    async def waits(self, run: RunName, user_id: str) -> AsyncIterator[SubFlowWait]:
        request = pb2.ListSubFlowWaitsRequest(flow_id=run.flow_id, cycle=run.cycle, run=run.run, user_id=user_id)
        more = True
        while more:
            async with calling(NAME):
                response = await self._stub.ListSubFlowWaits(request, timeout=_CALL_S)
            for wait in response.waits:
                yield _wait(wait)
            request.page_token = response.next_page_token
            more = bool(request.page_token)

    async def inputs(self, run: RunName, user_id: str, nodes: Sequence[str]) -> list[SubFlowWait]:
        request = pb2.ListSubFlowWaitsRequest(
            flow_id=run.flow_id,
            cycle=run.cycle,
            run=run.run,
            user_id=user_id,
            node_task_ids=[f"{run}:{node}" for node in nodes],
        )
        async with calling(NAME):
            response = await self._stub.ListSubFlowWaits(request, timeout=_CALL_S)
        return [_wait(wait) for wait in response.waits]

    async def report(self, reports: Sequence[SubFlowReport]) -> list[bool]:
        request = pb2.ReportSubFlowsRequest(reports=map(_report, reports))
        async with calling(NAME):
            response = await self._stub.ReportSubFlows(request, timeout=_CALL_S)
        return list(response.awaited)


def _wait(wait: pb2.SubFlowWait) -> SubFlowWait:
    return SubFlowWait(
        wait.node_task_id.split(":", 3)[3],
        wait.run_id,
        wait.attempt,
        wait.flow_id,
        run_name_of(wait.cycle) if wait.HasField("cycle") else None,
        wait.inputs_json,
        wait.input_bytes,
    )


def _report(report: SubFlowReport) -> pb2.SubFlowReport:
    parent, child = report.parent, report.child
    message = pb2.SubFlowReport(
        node_task_id=parent.task_id,
        run_id=parent.run_id,
        user_id=report.user_id,
        attempt=parent.attempt,
        cycle=node_task_pb2.SubFlowCycle(flow_id=child.flow_id, cycle=child.cycle, run=child.run) if child else None,
        final=report.final,
    )
    if report.error_code:
        message.error.code, message.error.message = report.error_code, report.error
    elif report.output_json:
        message.output_json = report.output_json
    return message
