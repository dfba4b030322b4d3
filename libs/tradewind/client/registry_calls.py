"""What a client asks the registry."""

from collections.abc import AsyncIterator

from tradewind.api.registry.v1 import registry_service_pb2 as pb
from tradewind.client.connection import Connection
from tradewind.client.messages import build
from tradewind.client.workers import NodeType, WorkerRecord, node_type_from, worker_from

PAGE = 500


class RegistryCalls:
    """Workers and node types."""

    _connection: Connection

    async def list_workers(self, *, include_offline: bool = False) -> AsyncIterator[WorkerRecord]:
        """Yield workers by id: live ones, and with `include_offline` also offline ones that are on record."""
        request = build(pb.ListWorkersRequest, page_size=PAGE, include_offline=include_offline)
        async for page in self._connection.pages(self._connection.registry.ListWorkers, request):
            for worker in page.workers:
                yield worker_from(worker)

    async def get_worker(self, worker_id: str) -> WorkerRecord:
        """Return one worker. Raises NotFound."""
        request = build(pb.GetWorkerRequest, worker_id=worker_id)
        answer = await self._connection.call(self._connection.registry.GetWorker, request)
        return worker_from(answer.worker)

    async def drain_worker(self, worker_id: str) -> WorkerRecord:
        """Ask a worker to take no new work, finish what it runs, and leave. Raises NotFound."""
        request = build(pb.DrainWorkerRequest, worker_id=worker_id)
        answer = await self._connection.call(self._connection.registry.DrainWorker, request)
        return worker_from(answer.worker)

    async def available_workers(self, node_type: str, *, limit: int = 100) -> list[WorkerRecord]:
        """Return workers that can take node tasks of a type now, least loaded first."""
        request = build(pb.GetAvailableWorkersRequest, node_type=node_type, limit=limit)
        answer = await self._connection.call(self._connection.registry.GetAvailableWorkers, request)
        return [worker_from(worker) for worker in answer.workers]

    async def list_node_types(self) -> AsyncIterator[NodeType]:
        """Yield the catalogue of node types, by name."""
        request = pb.ListNodeTypesRequest(page_size=PAGE)
        async for page in self._connection.pages(self._connection.registry.ListNodeTypes, request):
            for node_type in page.node_types:
                yield node_type_from(node_type)

    async def get_node_type(self, type: str) -> NodeType:
        """Return one node type. Raises NotFound."""
        request = build(pb.GetNodeTypeRequest, type=type)
        answer = await self._connection.call(self._connection.registry.GetNodeType, request)
        return node_type_from(answer.node_type)
