"""Node types that live workers offer, and their declarations, known from connected workers and the registry."""

import asyncio
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import grpc
import structlog

from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.node_task_manager.use_cases.workers import ConnectedWorker
from tradewind.server.nearest_name import NearestName

if TYPE_CHECKING:
    from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

_CALL_S = 2.0
_FRESH_S = 2.0
_USABLE_S = 30.0
_PATIENCE_S = 0.1
_MOST_TYPES = 10_000
_MOST_WORKERS = 1000

_log = structlog.get_logger(__name__)


class LiveNodeTypes:
    """Implements NodeTypes; an answer of the registry, or its failure to answer, is used for 2 s. Without `channel`
    there is no registry.

    When the registry hangs, callers wait at most 0.1 s if there is an answer from the last 30 s.
    """

    def __init__(self, connected: Iterable[ConnectedWorker], channel: grpc.aio.Channel | None) -> None:
        self._connected = connected
        self._registry = RegistryServiceStub(channel) if channel is not None else None
        self._known: dict[str, tuple[float, NodeType | None]] = {}
        self._asking: dict[str, asyncio.Task[NodeType | None]] = {}
        self._listed: tuple[float, frozenset[str]] = (0.0, frozenset())

    async def offered(self, node_type: str) -> bool | None:
        if any(node_type in worker.node_types for worker in self._connected):
            return True
        told = await self._told(node_type)
        return None if told is None else bool(told.worker_ids)

    async def hint(self, node_type: str) -> str:
        names = {name for worker in self._connected for name in worker.node_types}
        names |= await self._offered_elsewhere()
        return NearestName(sorted(names)).hint(node_type)

    async def declared(self, node_type: str) -> Declaration | None:
        told = await self._told(node_type)
        if told is None or not told.worker_ids:
            return None
        required = frozenset(handle.name for handle in told.inputs if handle.required and not handle.gather)
        return Declaration(required, told.config_schema_json)

    async def _offered_elsewhere(self) -> frozenset[str]:
        """Return the node types of the first thousand live workers; none while the registry is away."""
        until, names = self._listed
        if self._registry is None or time.monotonic() < until:
            return names
        names = frozenset()
        try:
            answer = await self._registry.ListWorkers(pb2.ListWorkersRequest(page_size=_MOST_WORKERS), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("registry_away", code=error.code().name, details=error.details())
        else:
            names = frozenset(name for worker in answer.workers for name in worker.node_types)
        self._listed = (time.monotonic() + _FRESH_S, names)
        return names

    async def _told(self, node_type: str) -> NodeType | None:
        """Return what the registry says of a node type, with no workers if none offers it; None if it cannot tell."""
        if self._registry is None:
            return None
        said_at, known = self._known.get(node_type, (-math.inf, None))
        age = time.monotonic() - said_at
        if age < _FRESH_S:
            return known
        asking = self._asking.get(node_type)
        if asking is None:
            asking = self._asking[node_type] = asyncio.create_task(self._ask(self._registry, node_type))
            asking.add_done_callback(lambda _: self._asking.pop(node_type, None))
        done, _ = await asyncio.wait([asking], timeout=_PATIENCE_S if age < _USABLE_S else None)
        return asking.result() if done else known

    async def _ask(self, registry: "RegistryServiceAsyncStub", node_type: str) -> NodeType | None:
        told: NodeType | None = None
        try:
            answer = await registry.ListNodeTypes(pb2.ListNodeTypesRequest(types=[node_type]), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            _log.warning("registry_away", code=error.code().name, details=error.details())
        else:
            told = next((each for each in answer.node_types if each.type == node_type), NodeType())
        if len(self._known) >= _MOST_TYPES:
            self._known.clear()
        self._known[node_type] = (time.monotonic(), told)
        return told
