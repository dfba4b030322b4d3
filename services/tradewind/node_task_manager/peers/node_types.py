"""Which node types live workers offer, as those connected here and the registry know it, and what they declared."""

import time
from collections.abc import Iterable

import grpc
import structlog

from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.node_task_manager.use_cases.workers import ConnectedWorker

_CALL_S = 2.0
_FRESH_S = 2.0
_MOST_TYPES = 10_000

_log = structlog.get_logger(__name__)


class LiveNodeTypes:
    """Implements NodeTypes; what the registry said, or that it could not, stays good for 2 s. Without `channel`
    there is none."""

    def __init__(self, connected: Iterable[ConnectedWorker], channel: grpc.aio.Channel | None) -> None:
        self._connected = connected
        self._registry = RegistryServiceStub(channel) if channel is not None else None
        self._known: dict[str, tuple[float, NodeType | None]] = {}

    async def offered(self, node_type: str) -> bool | None:
        if any(node_type in worker.node_types for worker in self._connected):
            return True
        told = await self._told(node_type)
        return None if told is None else bool(told.worker_ids)

    async def declared(self, node_type: str) -> Declaration | None:
        told = await self._told(node_type)
        if told is None or not told.worker_ids:
            return None
        required = frozenset(handle.name for handle in told.inputs if handle.required and not handle.gather)
        return Declaration(required, told.config_schema_json)

    async def _told(self, node_type: str) -> NodeType | None:
        """Return what the registry says of a node type, no workers where none offers it; None when it cannot tell."""
        if self._registry is None:
            return None
        until, known = self._known.get(node_type, (0.0, None))
        if time.monotonic() < until:
            return known
        told: NodeType | None = None
        try:
            answer = await self._registry.ListNodeTypes(pb2.ListNodeTypesRequest(types=[node_type]), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("registry_away", code=error.code().name, details=error.details())
        else:
            told = next((each for each in answer.node_types if each.type == node_type), NodeType())
        if len(self._known) >= _MOST_TYPES:
            self._known.clear()
        self._known[node_type] = (time.monotonic() + _FRESH_S, told)
        return told
