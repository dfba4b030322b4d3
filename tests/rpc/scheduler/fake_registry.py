"""A fake of the registry that the scheduler calls: a real gRPC servicer that the test controls."""

import grpc

from tradewind.api.registry.v1 import node_type_pb2, worker_pb2
from tradewind.api.registry.v1 import registry_service_pb2 as registry_pb2
from tradewind.api.registry.v1 import registry_service_pb2_grpc as registry_grpc
from tradewind.server.interception import Context


class FakeRegistry(registry_grpc.RegistryServiceServicer):
    """Offers the given node types."""

    def __init__(self) -> None:
        self.node_types: dict[str, node_type_pb2.NodeType] = {}
        self.down = False
        self.max_types = 1000
        self.requested: list[list[str]] = []
        self.workers: list[worker_pb2.Worker] = []

    def offer(self, node_type: node_type_pb2.NodeType) -> None:
        """Let a live worker offer a node type."""
        node_type.worker_ids.append("w1")
        self.node_types[node_type.type] = node_type

    async def ListNodeTypes(
        self, request: registry_pb2.ListNodeTypesRequest, context: Context
    ) -> registry_pb2.ListNodeTypesResponse:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        self.requested.append(list(request.types))
        if len(request.types) > self.max_types:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name fewer at once")
        found = [self.node_types[name] for name in request.types if name in self.node_types]
        return registry_pb2.ListNodeTypesResponse(node_types=found)

    async def ListWorkers(
        self, request: registry_pb2.ListWorkersRequest, context: Context
    ) -> registry_pb2.ListWorkersResponse:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        # A page may end early.
        first = int(request.page_token or 0)
        following = first + 2
        return registry_pb2.ListWorkersResponse(
            workers=self.workers[first:following],
            next_page_token=str(following) if following < len(self.workers) else "",
        )
