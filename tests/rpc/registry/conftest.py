"""A registry behind a real channel, over the embedded store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import pytest_asyncio

from tests.servers import RedisServer
from tradewind.api.registry.v1 import registry_service_pb2 as pb2
from tradewind.api.registry.v1 import registry_service_pb2_grpc as pb2_grpc
from tradewind.api.registry.v1.node_type_pb2 import InputHandle, NodeType, OutputHandle
from tradewind.api.registry.v1.worker_pb2 import Worker
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel

Stub: TypeAlias = "pb2_grpc.RegistryServiceAsyncStub"
Start = Callable[..., Awaitable[Stub]]

AVERAGE = NodeType(
    type="average",
    description="Mean of the last prices",
    inputs=[
        InputHandle(name="prices", schema_json='{"type": "array"}', required=True),
        InputHandle(name="more", gather=True),
    ],
    outputs=[OutputHandle(name="average", schema_json='{"type": "number"}')],
    config_schema_json='{"type": "object", "properties": {"window": {"type": "integer"}}}',
)


def a_worker(worker_id: str = "w", **fields: Any) -> Worker:
    """Return a worker of incarnation i1 and capacity 10, unless the fields say otherwise."""
    return Worker(**{"worker_id": worker_id, "incarnation": "i1", "capacity": 10, **fields})


async def register(stub: Stub, worker: Worker, *node_types: NodeType) -> pb2.RegisterWorkerResponse:
    """Register a worker."""
    return await stub.RegisterWorker(pb2.RegisterWorkerRequest(worker=worker, node_types=node_types))


@pytest_asyncio.fixture
async def start(embedded: RedisServer) -> AsyncIterator[Start]:
    """Starts registries over one fresh store and returns a stub for each."""
    await embedded.flush()
    running: list[tuple[Server, grpc.aio.Channel]] = []

    async def begin(**settings: Any) -> Stub:
        values = {"store_url": embedded.url("registry"), **settings}
        server = Server([Registry(RegistrySettings(**values))], drain_s=2)
        await server.start()
        channel = open_channel(server.address)
        running.append((server, channel))
        return pb2_grpc.RegistryServiceStub(channel)

    yield begin
    for server, channel in running:
        await channel.close()
        await server.stop()


@pytest_asyncio.fixture
async def registry(start: Start) -> Stub:
    """One registry."""
    return await start()
