"""A node task manager behind a real channel, with clients and workers of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest_asyncio

from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import component_pb2, node_task_pb2, work_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as pb2_grpc
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.redis.client import Client


def plan(*edges: tuple[str, str, str, str], nodes: str = "", digest: str = "p1", **fields: Any) -> component_pb2.Plan:
    """Build a plan from (source, handle, target, handle) edges and the names of further nodes."""
    names = [*nodes.split()]
    for source, _, target, _ in edges:
        names += [name for name in (source, target) if name not in names]
    return component_pb2.Plan(
        digest=digest,
        nodes=[component_pb2.PlanNode(node_id=name, node_type="noop", config_json='{"window":3}') for name in names],
        edges=[
            component_pb2.PlanEdge(source=names.index(a), source_handle=b, target=names.index(c), target_handle=d)
            for a, b, c, d in edges
        ],
        **fields,
    )


class RawWorker:
    """A worker that speaks the stream's messages and does nothing on its own."""

    def __init__(self, stub: "pb2_grpc.NodeTaskManagerServiceAsyncStub", worker_id: str, capacity: int = 10) -> None:
        self.stub = stub
        self.worker_id = worker_id
        self.capacity = capacity
        self.node_types = ["noop"]
        self.eager = False
        self.cache: dict[str, str] | None = None
        self.responses: list[work_pb2.WorkResponse] = []
        self.call: Any = None
        self.error: grpc.aio.AioRpcError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._sequence = 0

    async def open(self, *held: str, incarnation: str = "i1") -> None:
        """Open the stream and wait for the welcome."""
        self.call = self.stub.Work()
        self._reading = asyncio.create_task(self._read())
        hello = work_pb2.WorkerHello(
            worker_id=self.worker_id,
            incarnation=incarnation,
            node_types=self.node_types,
            capacity=self.capacity,
            held_tokens=held,
            offers=[work_pb2.OfferedType(node_type="noop", eager=self.eager, cache=self.cache)],  # type: ignore[arg-type]
        )
        await self.send(hello=hello)
        await until(lambda: any(r.HasField("welcome") for r in self.responses) or self.error, "the worker is welcome")

    async def send(self, **fields: Any) -> int:
        """Send one message and return its sequence number."""
        self._sequence += 1
        await self.call.write(work_pb2.WorkRequest(sequence=self._sequence, **fields))
        return self._sequence

    @property
    def assignments(self) -> list[work_pb2.NodeTaskAssignment]:
        return [each for response in self.responses for each in response.assignments]

    @property
    def losses(self) -> list[work_pb2.LeaseLoss]:
        return [each for response in self.responses for each in response.losses]

    async def assigned(self, count: int = 1) -> list[work_pb2.NodeTaskAssignment]:
        """Wait until `count` node tasks have been assigned."""
        await until(lambda: len(self.assignments) >= count, f"{self.worker_id} has {count} node tasks")
        return self.assignments

    async def complete(self, token: str, **outputs: str) -> int:
        """Report outputs and wait until the message has taken effect."""
        values = [{"handle": handle, "value_json": value} for handle, value in outputs.items()]
        sequence = await self.send(completions=[work_pb2.NodeTaskCompletion(token=token, outputs=values)])  # type: ignore[arg-type]
        await self.acknowledged(sequence)
        return sequence

    async def acknowledged(self, sequence: int) -> None:
        """Wait until a message has taken effect."""
        await until(
            lambda: any(r.acknowledged_sequence >= sequence for r in self.responses), f"message {sequence} took effect"
        )

    async def close(self) -> None:
        """Break off the stream."""
        if self.call is not None:
            self.call.cancel()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for response in self.call:
                self.responses.append(response)
        except grpc.aio.AioRpcError as error:
            self.error = error


class Ntm:
    """A running node task manager."""

    def __init__(self, server: Server, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.channel = channel
        self.stub = pb2_grpc.NodeTaskManagerServiceStub(channel)

    async def submit(self, *plans: component_pb2.Plan, **fields: Any) -> component_pb2.SubmitResult:
        """Submit one run with its plans."""
        run = {"flow_id": "flow", "run_id": "r0", "user_id": "default", **fields}
        parts = [
            component_pb2.ComponentSubmission(component_id=str(at), plan_digest=p.digest) for at, p in enumerate(plans)
        ]
        message = component_pb2.RunSubmission(components=parts, **run)
        answer = await self.stub.SubmitComponents(pb2.SubmitComponentsRequest(runs=[message], plans=plans))
        return answer.results[0]

    async def node(self, node_id: str, **fields: Any) -> node_task_pb2.NodeTask:
        """Return a node task of the run."""
        request = pb2.GetNodeTaskRequest(node_task_id=f"flow:0:0:{node_id}", user_id="default", **fields)
        return (await self.stub.GetNodeTask(request)).node_task


Start = Callable[..., Awaitable[Ntm]]


@pytest_asyncio.fixture
async def admin(embedded: RedisServer) -> AsyncIterator[Client]:
    """A client of the store with its operator's rights."""
    yield embedded.connect()
    await embedded.close_clients()


async def pubsub_connections(admin: Client) -> list[str]:
    """Return the connections with subscriptions."""
    text = await admin.execute_command("CLIENT", "LIST", "TYPE", "pubsub")
    return [line for line in text.decode().splitlines() if line]


@pytest_asyncio.fixture
async def start(embedded: RedisServer) -> AsyncIterator[Start]:
    """Start node task managers over one fresh store."""
    await embedded.flush()
    running: list[Ntm] = []

    async def begin(**settings: Any) -> Ntm:
        values = {
            "store_url": embedded.url("node_task_manager"),
            "registry_address": "",
            "node_task_manager_stream_grace_seconds": 0.2,
            **settings,
        }
        server = Server([NodeTaskManager(NodeTaskManagerSettings(**values))], drain_s=2)
        await server.start()
        ntm = Ntm(server, open_channel(server.address))
        running.append(ntm)
        return ntm

    yield begin
    for ntm in running:
        await ntm.channel.close()
        await ntm.server.stop()


@pytest_asyncio.fixture
async def ntm(start: Start) -> Ntm:
    """One node task manager."""
    return await start()


@pytest_asyncio.fixture
async def worker(ntm: Ntm) -> AsyncIterator[Callable[..., RawWorker]]:
    """Makes workers that are not connected yet."""
    made: list[RawWorker] = []

    def make(worker_id: str = "w1", at: Ntm | None = None, **options: Any) -> RawWorker:
        made.append(RawWorker((at or ntm).stub, worker_id, **options))
        return made[-1]

    yield make
    for each in made:
        await each.close()
