"""The part of NodeTaskManagerService for dead letters: parse, call the use case, answer."""

from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import dead_letter_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.node_task_manager.rpc import checks, mapping
from tradewind.node_task_manager.use_cases.ad_hoc import Position
from tradewind.node_task_manager.use_cases.dead_letters import DeadLetters
from tradewind.server.all_faults import require
from tradewind.server.faults import Violation
from tradewind.server.identifiers import check_identifier
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_token
from tradewind.server.telemetry import current_traceparent

_MAX_REDRIVEN = 100


@dataclass(eq=False, kw_only=True)
class DeadLetterHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """The calls about dead letters."""

    dead_letters: DeadLetters

    async def ListDeadLetters(
        self, request: pb2.ListDeadLettersRequest, context: Context
    ) -> pb2.ListDeadLettersResponse:
        after, limit = page_of(request, Position, user_id=request.user_id)
        views, following = await self.dead_letters.page(request.user_id, after, limit)
        return pb2.ListDeadLettersResponse(
            node_tasks=[mapping.node_task(each, history=True) for each in views], next_page_token=page_token(following)
        )

    async def RedriveDeadLetters(
        self, request: pb2.RedriveDeadLettersRequest, context: Context
    ) -> pb2.RedriveDeadLettersResponse:
        _check(request)
        redriven = await self.dead_letters.redrive(request.user_id, request.node_task_ids, current_traceparent())
        return pb2.RedriveDeadLettersResponse(
            redriven=[pb2.RedrivenTask(node_task_id=old, task_id=new) for old, new in redriven]
        )


def _check(request: pb2.RedriveDeadLettersRequest) -> None:
    ids = request.node_task_ids
    faults = [check_identifier("user_id", request.user_id)]
    if not 1 <= len(ids) <= _MAX_REDRIVEN:
        faults.append(Violation("node_task_ids", f"must name 1 to {_MAX_REDRIVEN}, there are {len(ids)}"))
    faults += [checks.task_id_fault(f"node_task_ids[{at}]", each) for at, each in enumerate(ids[:_MAX_REDRIVEN])]
    require(faults)
