"""The registry, as the node task manager sees it: is this worker known, and which workers want to be called?"""

from collections.abc import Sequence

import grpc
import structlog

from tradewind.api.registry.v1 import registry_service_pb2, registry_service_pb2_grpc, worker_pb2
from tradewind.node_task_manager.domain.called import CalledWorker
from tradewind.server.incidents import IncidentLog

_CALL_S = 5.0
"""For calls that are repeated; `tradewind.grpc_engine.CONNECT_WITHIN_MS` says why it is at least 3 s."""
_PAGE = 1000

_log = structlog.get_logger(__name__)


class RegisteredWorkers:
    """Implements WorkerDirectory and CalledWorkerDirectory. Without `channel` there is no registry: every worker will
    do, and there is nobody to call."""

    def __init__(self, channel: grpc.aio.Channel | None) -> None:
        self._registry = registry_service_pb2_grpc.RegistryServiceStub(channel) if channel is not None else None
        self._failing = IncidentLog(_log, "registry_unavailable", "registry_answers_again")

    async def knows(self, worker_id: str) -> bool:
        if self._registry is None:
            return True
        try:
            await self._registry.GetWorker(registry_service_pb2.GetWorkerRequest(worker_id=worker_id), timeout=2)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            self._failing.note("workers", worker_id=worker_id, code=error.code().name, details=error.details())
        return True

    async def called(self) -> Sequence[CalledWorker] | None:
        if self._registry is None:
            return ()
        found: list[CalledWorker] = []
        request = registry_service_pb2.ListWorkersRequest(page_size=_PAGE, only_called=True)
        while True:
            try:
                page = await self._registry.ListWorkers(request, timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                self._failing.note("called workers", code=error.code().name, details=error.details())
                return None
            found += map(_called, page.workers)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token


def _called(worker: worker_pb2.Worker) -> CalledWorker:
    return CalledWorker(
        worker.worker_id,
        worker.incarnation,
        worker.api_url,
        tuple(worker.node_types),
        worker.capacity,
        worker.status == worker_pb2.WORKER_STATUS_DRAINING,
    )
