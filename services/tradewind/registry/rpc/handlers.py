"""RegistryService: parses the request, calls the use case, builds the response."""

from collections.abc import AsyncIterator

from tradewind.api.registry.v1 import doctor_pb2
from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1 import registry_service_pb2_grpc as pb2_grpc
from tradewind.registry import use_cases
from tradewind.registry.domain.built_in import with_built_in
from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.ports import Stores
from tradewind.registry.rpc import mapping
from tradewind.server.doctor import Doctor
from tradewind.server.doctor_answers import doctor_answers
from tradewind.server.interception import Context
from tradewind.server.paging import page_of, page_token
from tradewind.server.timestamps import duration


class RegistryHandlers(pb2_grpc.RegistryServiceServicer):
    """The gRPC side of the registry; an outer layer turns faults into statuses."""

    def __init__(self, stores: Stores, lifetimes: Lifetimes, limits: Limits, doctor: Doctor) -> None:
        self._workers = stores.workers
        self._node_types = stores.node_types
        self._lifetimes = lifetimes
        self._limits = limits
        self._doctor = doctor

    async def RegisterWorker(self, request: pb2.RegisterWorkerRequest, context: Context) -> pb2.RegisterWorkerResponse:
        worker = mapping.worker(request.worker)
        node_types = [mapping.node_type(each) for each in request.node_types]
        record, warnings = await use_cases.register_worker(
            self._workers, self._node_types, worker, node_types, self._limits
        )
        return pb2.RegisterWorkerResponse(
            worker=mapping.worker_message(record),
            heartbeat_interval=duration(self._lifetimes.heartbeat_interval),
            time_to_live=duration(self._lifetimes.time_to_live),
            warnings=warnings,
        )

    async def Heartbeat(self, request: pb2.HeartbeatRequest, context: Context) -> pb2.HeartbeatResponse:
        worker = mapping.worker(request.worker)
        answer = await use_cases.heartbeat(self._workers, worker, self._limits, draining=request.draining)
        return pb2.HeartbeatResponse(register_again=answer.register_again, drain=answer.drain)

    async def DrainWorker(self, request: pb2.DrainWorkerRequest, context: Context) -> pb2.DrainWorkerResponse:
        record = await use_cases.drain_worker(self._workers, request.worker_id)
        return pb2.DrainWorkerResponse(worker=mapping.worker_message(record))

    async def DeregisterWorker(
        self, request: pb2.DeregisterWorkerRequest, context: Context
    ) -> pb2.DeregisterWorkerResponse:
        removed = await use_cases.deregister_worker(self._workers, request.worker_id, request.incarnation)
        return pb2.DeregisterWorkerResponse(removed=removed)

    async def GetWorker(self, request: pb2.GetWorkerRequest, context: Context) -> pb2.GetWorkerResponse:
        record = await use_cases.get_worker(self._workers, request.worker_id)
        return pb2.GetWorkerResponse(worker=mapping.worker_message(record))

    async def ListWorkers(self, request: pb2.ListWorkersRequest, context: Context) -> pb2.ListWorkersResponse:
        after, size = page_of(request, str)
        page = await self._workers.list(
            after or "", size, include_offline=request.include_offline, only_called=request.only_called
        )
        return pb2.ListWorkersResponse(
            workers=[mapping.worker_message(record) for record in page.records],
            next_page_token=page_token(page.next_after or None),
        )

    async def GetAvailableWorkers(
        self, request: pb2.GetAvailableWorkersRequest, context: Context
    ) -> pb2.GetAvailableWorkersResponse:
        records = await use_cases.available_workers(self._workers, request.node_type, request.limit, self._limits)
        return pb2.GetAvailableWorkersResponse(workers=[mapping.worker_message(record) for record in records])

    async def ListNodeTypes(self, request: pb2.ListNodeTypesRequest, context: Context) -> pb2.ListNodeTypesResponse:
        after, size = page_of(request, str)
        if request.types:
            found = await use_cases.find_node_types(self._node_types, request.types, self._limits)
            return pb2.ListNodeTypesResponse(node_types=[mapping.node_type_message(record) for record in found])
        page = await self._node_types.list(after or "", size)
        records, next_after = with_built_in(page.records, after or "", size, page.next_after)
        return pb2.ListNodeTypesResponse(
            node_types=[mapping.node_type_message(record) for record in records],
            next_page_token=page_token(next_after or None),
        )

    async def GetNodeType(self, request: pb2.GetNodeTypeRequest, context: Context) -> pb2.GetNodeTypeResponse:
        record = await use_cases.get_node_type(self._node_types, request.type)
        return pb2.GetNodeTypeResponse(node_type=mapping.node_type_message(record))

    async def RunDoctor(
        self, request: doctor_pb2.RunDoctorRequest, context: Context
    ) -> AsyncIterator[doctor_pb2.RunDoctorResponse]:
        async for answer in doctor_answers(self._doctor, request.mend, doctor_pb2.RunDoctorResponse):
            yield answer
