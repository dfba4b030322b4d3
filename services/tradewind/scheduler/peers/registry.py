"""The registry, over gRPC: the declarations that live workers have made of node types."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1.node_type_pb2 import NodeType
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.api.registry.v1.worker_pb2 import Worker, WorkerStatus
from tradewind.scheduler.domain.node_types import InputDeclaration
from tradewind.scheduler.domain.placement import WorkerView
from tradewind.scheduler.ports.explaining import KnownWorker
from tradewind.server import json_schema
from tradewind.server.json_types import JsonTypes, types_of
from tradewind.server.nearest_name import NearestName
from tradewind.server.timestamps import milliseconds

_CALL_S = 2.0
_FRESH_S = 3.0
_MAX_TYPES = 10_000
_PAGE, _MAX_PAGES = 1000, 10

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The inputs, outputs and config of one node type; implements NodeTypeDeclaration."""

    inputs: Mapping[str, InputDeclaration]
    outputs: Mapping[str, JsonTypes]
    config_schema: str

    @property
    def config_keys(self) -> Collection[str]:
        """The keys that a config may have; empty when other keys are allowed too."""
        return json_schema.allowed_keys(self.config_schema)

    def config_faults(self, config: Mapping[str, Any]) -> Iterable[tuple[Sequence[str | int], str]]:
        """Return the faults of a config; none if the schema cannot be used."""
        if not self.config_schema:
            return []
        try:
            return [(keys, message) for keys, message in json_schema.faults_by_place(self.config_schema, dict(config))]
        except ValueError:
            return []


class Catalogue:
    """Declarations at hand; implements NodeTypeCatalogue."""

    def __init__(self, declarations: Mapping[str, Declaration], offered: Iterable[str] = ()) -> None:
        self._declarations = declarations
        self._offered = NearestName(offered)

    def declared(self, node_type: str) -> Declaration | None:
        """Return the declaration of a type, None when no live worker offers it."""
        return self._declarations.get(node_type)

    def hint(self, node_type: str) -> str:
        """Return a hint at the offered type that was probably meant by an unknown one, "" when none is similar."""
        return self._offered.hint(node_type)


class RegistryPeer:
    """Implements NodeTypes, Workers and WorkerRecords; what it learns about node types is kept for a few seconds."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = RegistryServiceStub(channel)
        self._known: dict[str, tuple[float, Declaration | None]] = {}

    async def catalogue(self, node_types: Collection[str], *, hints: bool = False) -> Catalogue | None:
        now = time.monotonic()
        known = {name: self._known.get(name, (now, None)) for name in node_types}
        found = {name: declaration for name, (until, declaration) in known.items() if until > now}
        wanted = [name for name in known if name not in found]
        if wanted:
            try:
                declared = await self._declared(wanted)
            except grpc.aio.AioRpcError as error:
                _log.warning("registry_unavailable", code=error.code().name, details=error.details())
                return None
            found |= dict.fromkeys(wanted)
            found |= {each.type: _declaration(each) for each in declared if each.worker_ids}
            if len(self._known) + len(wanted) > _MAX_TYPES:
                self._known.clear()
            self._known |= {name: (now + _FRESH_S, found[name]) for name in wanted}
        declarations = {name: declaration for name, declaration in found.items() if declaration is not None}
        workers = await self._list_workers(include_offline=False) if hints and len(declarations) < len(found) else None
        return Catalogue(declarations, sorted({name for worker in workers or () for name in worker.node_types}))

    async def _declared(self, names: Sequence[str]) -> list[NodeType]:
        try:
            answer = await self._stub.ListNodeTypes(pb2.ListNodeTypesRequest(types=names), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT or len(names) == 1:
                raise
            # The types are too many, or together too large, for one answer.
            middle = len(names) // 2
            return [*await self._declared(names[:middle]), *await self._declared(names[middle:])]
        return list(answer.node_types)

    async def workers(self, node_type: str) -> list[KnownWorker] | None:
        found = await self._list_workers(include_offline=True)
        if found is None:
            return None
        return [
            KnownWorker(
                worker.worker_id,
                worker.capacity,
                worker.running,
                worker.status != WorkerStatus.WORKER_STATUS_OFFLINE,
                worker.status == WorkerStatus.WORKER_STATUS_DRAINING,
                milliseconds(worker.last_heartbeat),
            )
            for worker in found
            if node_type in worker.node_types
        ]

    async def offering(self, node_types: Collection[str]) -> list[WorkerView] | None:
        found = await self._list_workers(include_offline=False)
        if found is None:
            return None
        wanted = frozenset(node_types)
        return [_view(worker) for worker in found if not wanted.isdisjoint(worker.node_types)]

    async def _list_workers(self, *, include_offline: bool) -> list[Worker] | None:
        """Return the workers of the first ten pages; None when the registry is away."""
        found: list[Worker] = []
        request = pb2.ListWorkersRequest(page_size=_PAGE, include_offline=include_offline)
        for _ in range(_MAX_PAGES):
            try:
                page = await self._stub.ListWorkers(request, timeout=_CALL_S)
            except grpc.aio.AioRpcError as error:
                _log.warning("registry_unavailable", code=error.code().name, details=error.details())
                return None
            found += page.workers
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        return found


def _view(worker: Worker) -> WorkerView:
    return WorkerView(
        worker.worker_id,
        frozenset(worker.node_types),
        worker.capacity,
        worker.running,
        worker.status == WorkerStatus.WORKER_STATUS_DRAINING,
    )


def _declaration(node_type: NodeType) -> Declaration:
    return Declaration(
        {
            handle.name: InputDeclaration(handle.gather, handle.required, types_of(handle.schema_json))
            for handle in node_type.inputs
        },
        {handle.name: types_of(handle.schema_json) for handle in node_type.outputs},
        node_type.config_schema_json,
    )
