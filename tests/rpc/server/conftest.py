"""A running server over the echo service, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from tests.rpc.server.echo_service import EchoClient, EchoService
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel


@pytest.fixture
def service() -> EchoService:
    return EchoService()


@pytest.fixture
async def server(service: EchoService) -> AsyncIterator[Server]:
    server = Server([service], drain_s=5)
    await server.start()
    yield server
    await server.stop(drain_s=0)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[EchoClient]:
    async with open_channel(server.address) as channel:
        yield EchoClient(channel)
