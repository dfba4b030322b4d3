"""A called worker: it serves WorkerService, and makes calls of its own to report and renew."""

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.worker.v1 import worker_service_pb2
from tradewind.api.worker.v1.worker_service_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server
from tradewind.server.backoff import Backoff
from tradewind.server.connection_limits import connection_options
from tradewind.server.interception import CallInterceptor, Context
from tradewind.server.listening import listen_at
from tradewind.server.side_tasks import SideTasks
from tradewind.server.statuses import abort, status_with
from tradewind.worker.call_answers import CallAnswers
from tradewind.worker.errors import WorkerError
from tradewind.worker.executor import Executor
from tradewind.worker.identity import Identity
from tradewind.worker.link import Link
from tradewind.worker.outbox import Outbox
from tradewind.worker.times import seconds_of

if TYPE_CHECKING:
    from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceAsyncStub

logger = logging.getLogger("tradewind.worker")

SERVICE = "tradewind.api.worker.v1.WorkerService"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_REPORT_TIMEOUT = 10.0
_RENEW_INTERVAL = 10.0
_MIN_INTERVAL = 0.01
_STOP_GRACE = 1.0


class CalledLink(Link, WorkerServiceServicer):
    """A Link that listens from `start` on; it also serves health, which `drain` ends, and reflection."""

    def __init__(
        self,
        stub: "NodeTaskManagerServiceAsyncStub",
        identity: Identity,
        executor: Executor,
        outbox: Outbox,
        credentials: grpc.ServerCredentials | None,
    ) -> None:
        trouble = "a report did not get through; nodes continue, and it will be sent again"
        super().__init__(stub, identity, executor, outbox, trouble)
        self._credentials = credentials
        self._health = HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._interval = _RENEW_INTERVAL
        self._renewal: asyncio.TimerHandle | None = None
        self._side_tasks = SideTasks()

    async def start(self, listen: str) -> int:
        """Listen on `host:port` (port 0: a free one) and return the port. Raises WorkerError when it cannot."""
        options = (
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            *connection_options(),
        )
        server = self._server = grpc.aio.server(options=options, interceptors=[CallInterceptor([CallAnswers()])])
        add_WorkerServiceServicer_to_server(self, server)
        add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name), server
        )
        try:
            port = listen_at(server, listen, self._credentials)
        except OSError as error:
            raise WorkerError(str(error)) from None
        await server.start()
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self.connected.set()
        logger.info("listening on port %s as %s", port, self._identity.worker_id)
        return port

    async def stop(self) -> None:
        """Stop listening; calls under way have a second to end."""
        if self._renewal is not None:
            self._renewal.cancel()
        if self._server is not None:
            await self._server.stop(_STOP_GRACE)

    def drain(self) -> None:
        self._draining = True
        for name in ("", SERVICE):
            self._side_tasks.begin(self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING))

    async def run(self) -> None:
        """Send reports as soon as there are any, and renew leases, until finished.

        Reports that did not get through are sent again after a pause. Raises WorkerRefused after repeated refusals.
        """
        backoff = Backoff()
        sequence = 0
        while True:
            await self._outbox.wait()
            if self._finishing:
                return
            sequence += 1
            if await self._report(sequence):
                backoff.reset()
            else:
                await backoff.pause()

    async def Execute(
        self, request: worker_service_pb2.ExecuteRequest, context: Context
    ) -> worker_service_pb2.ExecuteResponse:
        if self._draining:
            await abort(context, status_with(grpc.StatusCode.UNAVAILABLE, "DRAINING", "this worker is leaving"))
        if request.HasField("renew_interval"):
            self._interval = max(_MIN_INTERVAL, seconds_of(request.renew_interval))
        self._executor.clock.sync(request)
        held, accepted = self._executor.held, []
        for assignment in request.assignments:
            token = assignment.token
            if self._outbox.remembers(token):
                self._outbox.assigned_again(token)
            elif token not in held:
                if len(held) >= self._identity.capacity:
                    continue
                self._executor.start(assignment)
            accepted.append(token)
        if request.assignments and not accepted:
            message = f"this worker runs {len(held)} of {self._identity.capacity} node tasks"
            await abort(context, status_with(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", message))
        if self._renewal is None and held:
            self._schedule_renewal()
        return worker_service_pb2.ExecuteResponse(accepted_tokens=accepted)

    async def Terminate(
        self, request: worker_service_pb2.TerminateRequest, context: Context
    ) -> worker_service_pb2.TerminateResponse:
        unknown = []
        for termination in request.terminations:
            if termination.token not in self._executor.held:
                unknown.append(termination.token)
            self._executor.terminate(termination)
        return worker_service_pb2.TerminateResponse(unknown_tokens=unknown)

    def _schedule_renewal(self) -> None:
        self._renewal = asyncio.get_running_loop().call_later(self._interval, self._renew)

    def _renew(self) -> None:
        self._renewal = None
        if self._executor.held:
            self._outbox.renew()
            self._schedule_renewal()

    async def _report(self, sequence: int) -> bool:
        """Send the waiting reports; return False when they did not get through."""
        reports = self._outbox.take(sequence)
        request = pb2.ReportNodeTasksRequest(
            worker_id=self._identity.worker_id,
            completions=reports.completions,
            failures=reports.failures,
            give_back_tokens=reports.give_back_tokens,
            held_tokens=reports.held_tokens,
            progress=reports.progress,
            logs=reports.logs,
        )
        try:
            response = await self._stub.ReportNodeTasks(request, timeout=_REPORT_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            self._outbox.requeue()
            if reports.renew:
                self._outbox.renew()
            self._troubles.note(error)
            return False
        self._troubles.refusals, self._troubles.logged = 0, False
        for loss in response.losses:
            self._executor.lose(loss.token, loss.reason)
            self._outbox.drop(loss.token)
        for termination in response.terminations:
            self._executor.terminate(termination)
        self._outbox.acknowledge(sequence)
        return True


def reachable_at(listen: str, port: int, api_url: str | None) -> str:
    """Return the address to register: `api_url`, or else the one listened on.

    Raises ValueError when `listen` is not `host:port`, or means all interfaces and there is no `api_url`; TypeError
    when it is not text.
    """
    if not isinstance(listen, str):
        raise TypeError(f"listen must be host:port, such as 127.0.0.1:0, not {listen!r}")
    host, colon, number = listen.rpartition(":")
    if not (colon and host and number.isdecimal() and int(number) < 2**16):
        raise ValueError(f"listen={listen} is not host:port, such as 127.0.0.1:0")
    if api_url:
        return api_url
    if host in ("0.0.0.0", "[::]"):
        raise ValueError(
            f"listen={listen} means every address of this machine: set api_url to the one that others can reach"
        )
    return f"{host}:{port}"
