"""The registry, as the node task manager sees it: who is this worker?"""

import grpc
import structlog

from tradewind.api.registry.v1 import registry_service_pb2, registry_service_pb2_grpc

_log = structlog.get_logger(__name__)


class RegistryDirectory:
    """A WorkerDirectory."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._registry = registry_service_pb2_grpc.RegistryServiceStub(channel)

    async def knows(self, worker_id: str) -> bool:
        try:
            await self._registry.GetWorker(registry_service_pb2.GetWorkerRequest(worker_id=worker_id), timeout=2)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            _log.warning("the registry could not be asked", worker_id=worker_id, error=error.details())
        return True
