"""Which workers are connected, over gRPC."""

from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.node_task_manager.ports.connected import ConnectedWorkers
from tradewind.node_task_manager.rpc import checks
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.server.all_faults import require
from tradewind.server.identifiers import check_identifier
from tradewind.server.interception import Context


@dataclass(eq=False, kw_only=True)
class ConnectionHandlers(pb2_grpc.NodeTaskManagerServiceServicer):
    """The part of the service that lists connections."""

    connected: ConnectedWorkers

    async def ListConnections(
        self, request: pb2.ListConnectionsRequest, context: Context
    ) -> pb2.ListConnectionsResponse:
        checks.at_most("worker_ids", request.worker_ids)
        require(check_identifier(f"worker_ids[{at}]", each) for at, each in enumerate(request.worker_ids))
        since = await self.connected.since(request.worker_ids)
        connections = [
            pb2.Connection(worker_id=worker_id, connected_since=timestamp(since_ms))
            for worker_id, since_ms in since.items()
        ]
        return pb2.ListConnectionsResponse(connections=connections)
