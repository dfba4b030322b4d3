"""Node types that live workers offer, and their declarations, known from connected workers and the registry."""

import asyncio
import math
import time
from typing import TYPE_CHECKING

import grpc
import structlog

from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.node_task_manager.ports.workers import Declaration
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool
from tradewind.server.incidents import IncidentLog
from tradewind.server.nearest_name import NearestName

if TYPE_CHECKING:
    from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

_CALL_S = 2.0
_FRESH_S = 2.0
_USABLE_S = 30.0
_STALE_WAIT_S = 0.1
_MAX_TYPES = 10_000
_MAX_WORKERS = 1000

_log = structlog.get_logger(__name__)


class LiveNodeTypes:
    """Implements NodeTypes; an answer of the registry, or its failure to answer, is used for 2 s. Without `channel`
    there is no registry.

    When the registry hangs, callers wait at most 0.1 s if there is an answer from the last 30 s.
    """

    def __init__(self, pool: WorkerPool, channel: grpc.aio.Channel | None) -> None:
        self._pool = pool
        self._registry = RegistryServiceStub(channel) if channel is not None else None
        self._known: dict[str, tuple[float, NodeType | None]] = {}
        self._requests: dict[str, asyncio.Task[NodeType | None]] = {}
        self._listed: tuple[float, frozenset[str]] = (0.0, frozenset())
        self._failing = IncidentLog(_log, "registry_unavailable", "registry_answers_again")

    async def offered(self, node_type: str) -> bool | None:
        if self._pool.offers(node_type):
            return True
        listed = await self._from_registry(node_type)
        return None if listed is None else bool(listed.worker_ids)

    async def hint(self, node_type: str) -> str:
        names = {name for worker in self._pool for name in worker.node_types}
        names |= await self._offered_in_registry()
        return NearestName(sorted(names - {node_type})).hint(node_type)

    async def declared(self, node_type: str) -> Declaration | None:
        listed = await self._from_registry(node_type)
        if listed is None or not listed.worker_ids:
            return None
        required = frozenset(handle.name for handle in listed.inputs if handle.required and not handle.gather)
        return Declaration(required, listed.config_schema_json)

    async def _offered_in_registry(self) -> frozenset[str]:
        """Return the node types of the first thousand live workers; none while the registry is away."""
        until, names = self._listed
        if self._registry is None or time.monotonic() < until:
            return names
        names = frozenset()
        try:
            answer = await self._registry.ListWorkers(pb2.ListWorkersRequest(page_size=_MAX_WORKERS), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            self._failing.note("node types", code=error.code().name, details=error.details())
        else:
            names = frozenset(name for worker in answer.workers for name in worker.node_types)
        self._listed = (time.monotonic() + _FRESH_S, names)
        return names

    async def _from_registry(self, node_type: str) -> NodeType | None:
        """Return what the registry says of a node type, with no workers if none offers it; None if it cannot tell."""
        if self._registry is None:
            return None
        answered_at, known = self._known.get(node_type, (-math.inf, None))
        age = time.monotonic() - answered_at
        if age < _FRESH_S:
            return known
        request = self._requests.get(node_type)
        if request is None:
            request = self._requests[node_type] = asyncio.create_task(self._request(self._registry, node_type))
            request.add_done_callback(lambda _: self._requests.pop(node_type, None))
        done, _ = await asyncio.wait([request], timeout=_STALE_WAIT_S if age < _USABLE_S else None)
        return request.result() if done else known

    async def _request(self, registry: "RegistryServiceAsyncStub", node_type: str) -> NodeType | None:
        listed: NodeType | None = None
        try:
            answer = await registry.ListNodeTypes(pb2.ListNodeTypesRequest(types=[node_type]), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            self._failing.note("node types", code=error.code().name, details=error.details())
        else:
            listed = next((each for each in answer.node_types if each.type == node_type), NodeType())
        if len(self._known) >= _MAX_TYPES:
            self._known.clear()
        self._known[node_type] = (time.monotonic(), listed)
        return listed
