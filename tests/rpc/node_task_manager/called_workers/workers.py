"""A registry that lists called workers, and called workers that do only what the test wants."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from tests.rpc.node_task_manager.conftest import Ntm, plan
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as ntm_pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.api.registry.v1 import registry_service_pb2, registry_service_pb2_grpc, worker_pb2
from tradewind.api.worker.v1 import worker_service_pb2 as pb2
from tradewind.api.worker.v1 import worker_service_pb2_grpc as pb2_grpc
from tradewind.server.statuses import STATUS_KEY

if TYPE_CHECKING:
    from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceAsyncStub

Status = grpc.StatusCode
PENDING, RUNNING = node_task_pb2.NODE_TASK_STATUS_PENDING, node_task_pb2.NODE_TASK_STATUS_RUNNING
COMPLETED, TERMINATED = node_task_pb2.NODE_TASK_STATUS_COMPLETED, node_task_pb2.NODE_TASK_STATUS_TERMINATED
LASTING = {"node_task_manager_lease_seconds": 600, "node_task_manager_called_seconds": 0.2}
"""Leases that no test sees lapse, and changes of the list that are noticed soon."""

Context = grpc.aio.ServicerContext[Any, Any]
Refusal = Callable[[Context], Awaitable[None]]


class Registry(registry_service_pb2_grpc.RegistryServiceServicer):
    """Lists `workers`, which the test sets."""

    def __init__(self) -> None:
        self.workers: list[worker_pb2.Worker] = []
        self.polls = 0
        self.address = ""
        self._server = grpc.aio.server()

    async def start(self) -> None:
        """Serve on a free port."""
        registry_service_pb2_grpc.add_RegistryServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def list(self, *workers: worker_pb2.Worker) -> None:
        """List these workers from now on; return when the only node task manager has noticed."""
        self.workers = list(workers)
        polls = self.polls
        # The node task manager asks again only after it has acted on the previous answer.
        await until(lambda: self.polls >= polls + 2, "the node task manager has heard of the workers")

    async def stop(self) -> None:
        """Stop serving."""
        await self._server.stop(None)

    async def ListWorkers(
        self, request: registry_service_pb2.ListWorkersRequest, context: Context
    ) -> registry_service_pb2.ListWorkersResponse:
        assert request.only_called
        self.polls += 1
        return registry_service_pb2.ListWorkersResponse(workers=self.workers)


class Called(pb2_grpc.WorkerServiceServicer):
    """Takes and keeps what it is handed, unless `refuse` aborts the call or `room` is used up.

    It never takes more than its capacity: until replicas know of each other, two of them may hand it node tasks.
    """

    def __init__(self, worker_id: str, capacity: int = 10, room: int = 1000) -> None:
        self.worker_id = worker_id
        self.capacity = capacity
        self.room = room
        self.refuse: Refusal | None = None
        self.calls: list[pb2.ExecuteRequest] = []
        self.accepted: list[work_pb2.NodeTaskAssignment] = []
        self._ended: set[str] = set()
        self.terminations: list[work_pb2.NodeTaskTermination] = []
        self.port = 0
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve on a free port."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        pb2_grpc.add_WorkerServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()

    async def stop(self) -> None:
        """Break off all calls and connections."""
        if self._server is not None:
            await self._server.stop(None)

    def listed(self, **fields: Any) -> worker_pb2.Worker:
        """Return its entry in the registry's list."""
        defaults = {
            "worker_id": self.worker_id,
            "incarnation": "i1",
            "api_url": f"http://127.0.0.1:{self.port}",
            "node_types": ["noop"],
            "capacity": self.capacity,
            "status": worker_pb2.WORKER_STATUS_ACTIVE,
        }
        return worker_pb2.Worker(**{**defaults, **fields})

    async def has(self, count: int) -> list[work_pb2.NodeTaskAssignment]:
        """Wait until it has taken `count` node tasks in all."""
        await until(lambda: len(self.accepted) >= count, f"{self.worker_id} has taken {count} node tasks")
        return self.accepted

    async def complete(self, at: "NodeTaskManagerServiceAsyncStub", *tokens: str, **outputs: str) -> None:
        """Report outputs of node tasks."""
        self._ended.update(tokens)
        values = [{"handle": handle, "value_json": value} for handle, value in outputs.items()]
        completions = [work_pb2.NodeTaskCompletion(token=token, outputs=values) for token in tokens]  # type: ignore[arg-type]
        await at.CompleteNodeTasks(ntm_pb2.CompleteNodeTasksRequest(worker_id=self.worker_id, completions=completions))

    async def Execute(self, request: pb2.ExecuteRequest, context: Context) -> pb2.ExecuteResponse:
        self.calls.append(request)
        if self.refuse is not None:
            await self.refuse(context)
        running = sum(each.token not in self._ended for each in self.accepted)
        accepted = list(request.assignments)[: min(self.room, self.capacity - running)]
        self.room -= len(accepted)
        self.accepted += accepted
        return pb2.ExecuteResponse(accepted_tokens=[each.token for each in accepted])

    async def Terminate(self, request: pb2.TerminateRequest, context: Context) -> pb2.TerminateResponse:
        self.terminations += request.terminations
        return pb2.TerminateResponse()


Make = Callable[..., Awaitable[Called]]


class Proxy:
    """Stands in front of a port and breaks all connections when told to; `connections` counts them."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break all connections and stop listening."""
        if self._server is not None:
            self._server.close()
        self.drop()

    def drop(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        self._writers += [writer, behind_writer]
        self.connections += 1
        try:
            await asyncio.gather(self._pipe(reader, behind_writer), self._pipe(behind_reader, writer))
        finally:
            writer.close()
            behind_writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


def aborting(code: grpc.StatusCode, details: bytes | None = None) -> Refusal:
    """Refuse with a status and its details."""

    async def refuse(context: Context) -> None:
        await context.abort(code, "as the test wants", () if details is None else ((STATUS_KEY, details),))

    return refuse


async def hanging(context: Context) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def until_node(
    ntm: Ntm, node_id: str, status: node_task_pb2.NodeTaskStatus.ValueType, **fields: Any
) -> node_task_pb2.NodeTask:
    """Wait until a node task has a status; return it."""
    seen: list[node_task_pb2.NodeTask] = []

    async def reached() -> bool:
        seen.append(await ntm.node(node_id))
        return seen[-1].status == status and all(getattr(seen[-1], name) == value for name, value in fields.items())

    await until(reached, f"{node_id} is {node_task_pb2.NodeTaskStatus.Name(status)} {fields}")
    return seen[-1]


def losses(task: node_task_pb2.NodeTask) -> int:
    """Count the attempts whose worker was lost."""
    return sum(each.code == "WORKER_LOST" for each in task.history)


async def give_a(ntm: Ntm, registry: Registry, worker: Called) -> work_pb2.NodeTaskAssignment:
    """List only this worker, and submit a flow of one node; return the node as the worker has taken it."""
    registry.workers = [worker.listed()]
    await ntm.submit(plan(nodes="a"))
    (assignment,) = await worker.has(1)
    return assignment
