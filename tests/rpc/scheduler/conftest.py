"""A scheduler behind a real channel, over a real store, among services that do as the test tells them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import pytest
import pytest_asyncio

from tests.rpc.scheduler.fake_node_task_manager import FakeNodeTaskManager
from tests.rpc.scheduler.fake_registry import FakeRegistry
from tests.rpc.scheduler.fake_trigger import FakeTriggerService
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc as ntm_grpc
from tradewind.api.registry.v1 import registry_service_pb2_grpc as registry_grpc
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc as trigger_grpc
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.errors import ErrorTable


class Peers:
    """The other services, together behind one address; bound to a server like a service."""

    names: Sequence[str] = ()
    tracing = None
    errors = ErrorTable()

    def __init__(self) -> None:
        self.node_tasks = FakeNodeTaskManager()  # type: ignore[abstract]
        self.triggers = FakeTriggerService()  # type: ignore[abstract]
        self.registry = FakeRegistry()  # type: ignore[abstract]

    def bind(self, server: grpc.aio.Server) -> None:
        ntm_grpc.add_NodeTaskManagerServiceServicer_to_server(self.node_tasks, server)
        trigger_grpc.add_TriggerServiceServicer_to_server(self.triggers, server)
        registry_grpc.add_RegistryServiceServicer_to_server(self.registry, server)

    async def start(self) -> None:
        """Nothing to begin."""

    async def drain(self) -> None:
        """Nothing to end."""

    async def stop(self) -> None:
        """Nothing to end."""

    async def not_ready(self) -> str | None:
        return None


class Client:
    """A scheduler's stub with shortcuts for tests."""

    def __init__(self, server: Server, channel: grpc.aio.Channel, service: Scheduler) -> None:
        self.server = server
        self.channel = channel
        self.service = service
        self.stub = pb2_grpc.SchedulerServiceStub(channel)

    async def register(self, flow_id: str = "f", *nodes: str, edges: str = "", **fields: Any) -> flow_pb2.Flow:
        """Register a flow of nodes `a b c` and edges `a>b b>c`, with overlap allow unless said otherwise."""
        spec = flow_pb2.FlowSpec(interval="60", overlap=flow_pb2.OVERLAP_POLICY_ALLOW)
        for name in nodes or ("a",):
            spec.nodes.add(id=name, type="noop")
        for edge in edges.split():
            source, target = edge.split(">")
            spec.edges.add(source=source, source_handle="out", target=target, target_handle="in")
        request = {key: fields.pop(key) for key in ("labels", "user_id", "request_id") if key in fields}
        spec.MergeFrom(flow_pb2.FlowSpec(**fields))
        response = await self.stub.RegisterFlow(pb2.RegisterFlowRequest(flow_id=flow_id, spec=spec, **request))
        return response.flow

    async def run(self, flow_id: str = "f", wait: float = 10, **fields: Any) -> cycle_pb2.Cycle:
        """Run a flow and return its cycle."""
        return (await self.run_flow(flow_id, wait, **fields)).cycle

    async def run_flow(self, flow_id: str = "f", wait: float = 10, **fields: Any) -> pb2.RunFlowResponse:
        """Run a flow."""
        request = pb2.RunFlowRequest(flow_id=flow_id, **fields)
        if wait:
            request.wait.FromMilliseconds(int(wait * 1000))
        return await self.stub.RunFlow(request)

    async def flow(self, flow_id: str = "f") -> flow_pb2.Flow:
        return (await self.stub.GetFlow(pb2.GetFlowRequest(flow_id=flow_id))).flow

    async def start(self, flow_id: str = "f") -> flow_pb2.Flow:
        return (await self.stub.StartFlow(pb2.StartFlowRequest(flow_id=flow_id))).flow

    async def stop(self, flow_id: str = "f", **fields: Any) -> flow_pb2.Flow:
        return (await self.stub.StopFlow(pb2.StopFlowRequest(flow_id=flow_id, **fields))).flow

    async def cycle(self, flow_id: str = "f", **fields: Any) -> cycle_pb2.Cycle:
        return (await self.stub.GetCycle(pb2.GetCycleRequest(flow_id=flow_id, **fields))).cycle

    async def ended(self, flow_id: str = "f", cycle: int = 0) -> cycle_pb2.Cycle:
        """Wait until a cycle has ended."""
        found: list[cycle_pb2.Cycle] = []

        async def over() -> bool:
            found[:] = [await self.cycle(flow_id, cycle=cycle)]
            return found[0].status != cycle_pb2.CYCLE_STATUS_RUNNING

        await until(over, f"cycle {cycle} of {flow_id} has ended")
        return found[0]

    async def lines(self, flow_id: str = "f", **fields: Any) -> list[str]:
        response = await self.stub.ListLogs(pb2.ListLogsRequest(flow_id=flow_id, **fields))
        return [line.message for line in response.lines]


Start = Callable[..., Awaitable[Client]]


@pytest_asyncio.fixture
async def peers_server() -> AsyncIterator[tuple[Peers, Server]]:
    peers = Peers()
    server = Server([peers], drain_s=0.1)
    await server.start()
    yield peers, server
    await server.stop()


@pytest.fixture
def peers(peers_server: tuple[Peers, Server]) -> Peers:
    """The other services."""
    return peers_server[0]


@pytest_asyncio.fixture
async def start(embedded: RedisServer, peers_server: tuple[Peers, Server]) -> AsyncIterator[Start]:
    """Starts schedulers over one fresh store."""
    await embedded.flush()
    running: list[Client] = []

    async def begin(**settings: Any) -> Client:
        address = peers_server[1].address
        values = {
            "store_url": embedded.url("scheduler"),
            "node_task_manager_address": address,
            "trigger_address": address,
            "registry_address": address,
            "scheduler_lease_seconds": 3.0,
            **settings,
        }
        service = Scheduler(SchedulerSettings(**values))
        server = Server([service], drain_s=2)
        await server.start()
        client = Client(server, open_channel(server.address), service)
        running.append(client)
        return client

    yield begin
    for client in running:
        await client.channel.close()
        await client.server.stop()
    await embedded.close_clients()


@pytest_asyncio.fixture
async def scheduler(start: Start, peers: Peers) -> Client:
    """One scheduler that owns all partitions and hears of events and due triggers."""
    client = await start()
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    return client
