"""A node task manager and a registry for tests of workers: the test sees and sends every message."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tests.ports import free_port
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import (
    node_task_manager_service_pb2,
    node_task_manager_service_pb2_grpc,
    work_pb2,
)
from tradewind.api.registry.v1 import registry_service_pb2, registry_service_pb2_grpc

_Context = grpc.aio.ServicerContext[Any, Any]
_END = None


class Session:
    """One Work stream, seen from the server's side."""

    def __init__(self, engine: "Engine", context: _Context, number: int) -> None:
        self.number = number
        self.hello = work_pb2.WorkRequest()
        self.requests: list[work_pb2.WorkRequest] = []
        """All requests after the hello."""
        self.ended = asyncio.Event()
        """Set when the stream is over."""
        self.half_closed = False
        """Whether the worker has closed its side of the stream."""
        self._engine = engine
        self._context = context
        self._outward: asyncio.Queue[work_pb2.WorkResponse | None] = asyncio.Queue()
        self._fault: tuple[grpc.StatusCode, str] | None = None

    def send(self, response: work_pb2.WorkResponse) -> None:
        """Send a message to the worker."""
        self._outward.put_nowait(response)

    def assign(self, node_type: str, *tokens: str, **fields: Any) -> None:
        """Send one message with one assignment per token."""
        self.send(work_pb2.WorkResponse(assignments=[assignment(node_type, token, **fields) for token in tokens]))

    def acknowledge(self) -> None:
        """Acknowledge all that has come so far."""
        self.send(work_pb2.WorkResponse(acknowledged_sequence=self.requests[-1].sequence))

    def end(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, reason: str = "") -> None:
        """End the stream with a status and an ErrorInfo reason."""
        self._fault = (code, reason) if code is not grpc.StatusCode.OK else None
        self._outward.put_nowait(_END)

    @property
    def completions(self) -> list[work_pb2.NodeTaskCompletion]:
        """All completions on this stream."""
        return [each for request in self.requests for each in request.completions]

    @property
    def failures(self) -> list[work_pb2.NodeTaskFailure]:
        """All failures on this stream."""
        return [each for request in self.requests for each in request.failures]

    @property
    def given_back(self) -> list[str]:
        """All tokens given back on this stream."""
        return [token for request in self.requests for token in request.give_back_tokens]

    @property
    def renewals(self) -> list[list[str]]:
        """The tokens of each renewal on this stream."""
        return [sorted(request.held_tokens) for request in self.requests if request.renew]

    async def until_completed(self, *tokens: str) -> None:
        """Wait for completions of exactly these tokens, in any order."""
        await until(
            lambda: sorted(each.token for each in self.completions) == sorted(tokens), f"{tokens} are completed"
        )

    async def serve(self, requests: AsyncIterator[work_pb2.WorkRequest]) -> AsyncIterator[work_pb2.WorkResponse]:
        """Handle the stream."""
        self.hello = await anext(requests)
        self._engine.sessions.append(self)
        if self._engine.refusal is not None:
            await self._abort(*self._engine.refusal)
        if self._engine.silent:
            await self.ended.wait()
        reading = asyncio.create_task(self._read(requests))
        try:
            yield work_pb2.WorkResponse(welcome=self._engine.welcome(self.number))
            while (response := await self._outward.get()) is not None:
                yield response
            if self._fault is not None:
                await self._abort(*self._fault)
        finally:
            reading.cancel()
            self.ended.set()

    async def _read(self, requests: AsyncIterator[work_pb2.WorkRequest]) -> None:
        async for request in requests:
            self.requests.append(request)
            if self._engine.acknowledging:
                self.acknowledge()
        self.half_closed = True
        self._outward.put_nowait(_END)

    async def _abort(self, code: grpc.StatusCode, reason: str) -> None:
        packed = any_pb2.Any()
        packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="tradewind"))
        status = status_pb2.Status(code=code.value[0], message="as the test wants", details=[packed])
        await self._context.abort(code, "as the test wants", (("grpc-status-details-bin", status.SerializeToString()),))


class Engine(  # type: ignore[misc]
    node_task_manager_service_pb2_grpc.NodeTaskManagerServiceServicer,
    registry_service_pb2_grpc.RegistryServiceServicer,
):
    """Both services on one port. Records the messages that come; the attributes say how to answer."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.acknowledging = True
        """Whether every message is acknowledged as it comes."""
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        """Streams are refused with this after their hello."""
        self.welcomed = 0
        """How many streams were welcomed."""
        self.silent = False
        """Whether no stream is ever welcomed."""
        self.lease_seconds, self.renew_seconds = 30.0, 10.0
        self.registered: list[registry_service_pb2.RegisterWorkerRequest] = []
        self.beats: list[registry_service_pb2.HeartbeatRequest] = []
        self.reports: list[node_task_manager_service_pb2.ReportNodeTasksRequest] = []
        """The reports of called workers."""
        self.report_fault: grpc.StatusCode | None = None
        """Every report fails with this."""
        self.report_faults = 0
        """How many reports have failed."""
        self.report_answer = node_task_manager_service_pb2.ReportNodeTasksResponse()
        """The answer to every report."""
        self.deregistered: list[registry_service_pb2.DeregisterWorkerRequest] = []
        self.registry_faults = 0
        """How many calls to the registry have failed."""
        self.registry_fault: grpc.StatusCode | None = None
        """Every call to the registry fails with this."""
        self.beat_seconds = 20.0
        self.warnings: list[str] = []
        self.beat_answer = registry_service_pb2.HeartbeatResponse()
        """The answer to the next heartbeat only."""
        self.port = free_port()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve on the engine's port."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        node_task_manager_service_pb2_grpc.add_NodeTaskManagerServiceServicer_to_server(self, self._server)
        registry_service_pb2_grpc.add_RegistryServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Break every stream and stop listening."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    @property
    def address(self) -> str:
        """The address that it listens on."""
        return f"127.0.0.1:{self.port}"

    async def session(self, number: int = 1) -> Session:
        """Wait for the stream with this number, from 1."""
        await until(lambda: len(self.sessions) >= number, f"stream {number} is opened")
        return self.sessions[number - 1]

    def welcome(self, session: int) -> work_pb2.WorkerWelcome:
        """Return the welcome for a worker."""
        self.welcomed += 1
        welcome = work_pb2.WorkerWelcome(session=session)
        welcome.lease.FromNanoseconds(int(self.lease_seconds * 1e9))
        welcome.renew_interval.FromNanoseconds(int(self.renew_seconds * 1e9))
        return welcome

    async def Work(
        self, request_iterator: AsyncIterator[work_pb2.WorkRequest], context: _Context
    ) -> AsyncIterator[work_pb2.WorkResponse]:
        """A worker's stream."""
        session = Session(self, context, len(self.sessions) + 1)
        async for response in session.serve(request_iterator):
            yield response

    async def ReportNodeTasks(
        self, request: node_task_manager_service_pb2.ReportNodeTasksRequest, context: _Context
    ) -> node_task_manager_service_pb2.ReportNodeTasksResponse:
        """Record the report of a called worker."""
        if self.report_fault is not None:
            self.report_faults += 1
            await context.abort(self.report_fault, "as the test wants")
        self.reports.append(request)
        return self.report_answer

    async def RegisterWorker(
        self, request: registry_service_pb2.RegisterWorkerRequest, context: _Context
    ) -> registry_service_pb2.RegisterWorkerResponse:
        """Add the worker to the list."""
        await self._check(context)
        self.registered.append(request)
        response = registry_service_pb2.RegisterWorkerResponse(worker=request.worker, warnings=self.warnings)
        response.heartbeat_interval.FromNanoseconds(int(self.beat_seconds * 1e9))
        return response

    async def Heartbeat(
        self, request: registry_service_pb2.HeartbeatRequest, context: _Context
    ) -> registry_service_pb2.HeartbeatResponse:
        """Record the heartbeat."""
        await self._check(context)
        self.beats.append(request)
        answer, self.beat_answer = self.beat_answer, registry_service_pb2.HeartbeatResponse()
        return answer

    async def DeregisterWorker(
        self, request: registry_service_pb2.DeregisterWorkerRequest, context: _Context
    ) -> registry_service_pb2.DeregisterWorkerResponse:
        """Remove the worker from the list."""
        await self._check(context)
        self.deregistered.append(request)
        return registry_service_pb2.DeregisterWorkerResponse(removed=True)

    async def _check(self, context: _Context) -> None:
        if self.registry_fault is not None:
            self.registry_faults += 1
            await context.abort(self.registry_fault, "as the test wants")


async def started_engine() -> Engine:
    """Return an engine that serves on a free port."""
    engine = Engine()  # type: ignore[abstract]  # calls that no worker with a stream makes are missing
    await engine.start()
    return engine


def assignment(node_type: str, token: str, **fields: Any) -> work_pb2.NodeTaskAssignment:
    """Return an assignment whose token is also the id of its node."""
    return work_pb2.NodeTaskAssignment(
        token=token, node_task_id=f"flow:0:0:{token}", node_id=token, node_type=node_type, attempt=1, **fields
    )
