"""The part of NodeTaskManagerService for signals: parse, call the use case, answer."""

from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.api.node_task_manager.v1 import waiting_pb2 as pb2
from tradewind.node_task_manager.rpc import checks, mapping, waiting_mapping
from tradewind.node_task_manager.use_cases.signal_node import SignalNode
from tradewind.server.all_faults import every
from tradewind.server.interception import Context


@dataclass(eq=False, kw_only=True)
class SignalHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """Signals to node tasks."""

    signal_node: SignalNode

    async def SignalNode(self, request: pb2.SignalNodeRequest, context: Context) -> pb2.SignalNodeResponse:
        _, signal = every(
            lambda: checks.task_id(request.node_task_id, request.user_id),
            lambda: waiting_mapping.signal_request(request),
        )
        view, kept = await self.signal_node(request.node_task_id, request.user_id, signal)
        return pb2.SignalNodeResponse(node_task=mapping.node_task(view), kept=kept)
