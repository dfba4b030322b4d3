"""An access service behind a real channel, over the embedded store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from tests.servers import RedisServer
from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceStub
from tradewind.api.access.v1.session_pb2 import Role, User
from tradewind.client.refusals import error_from
from tradewind.grpc_engine.bearer import with_token
from tradewind.server.access.gate_settings import gate_of
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel

if TYPE_CHECKING:
    from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceAsyncStub

SECRET = "a secret of all the servers"


@dataclass
class Calls:
    """Opens stubs for holders of tokens."""

    address: str
    channels: list[grpc.aio.Channel]

    def of(self, token: str | None) -> "AccessServiceAsyncStub":
        """Return stubs that call with a token."""
        channel = with_token(open_channel(self.address), token)
        self.channels.append(channel)
        return AccessServiceStub(channel)

    @property
    def root(self) -> "AccessServiceAsyncStub":
        """Stubs that call as a server does."""
        return self.of(SECRET)

    async def token(self, user_id: str, role: Role.ValueType, **fields: Any) -> str:
        """Make a token for a user who has or is given this role."""
        return (await self.root.CreateToken(pb2.CreateTokenRequest(user_id=user_id, role=role, **fields))).token

    async def set_role(self, user_id: str, role: Role.ValueType) -> None:
        """Change the role of a user."""
        await self.root.SetUser(pb2.SetUserRequest(user=User(user_id=user_id, role=role)))


Start = Callable[..., Awaitable[Calls]]


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the code and the reason with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), error_from(refused.value, "", "").reason


@pytest_asyncio.fixture
async def start(embedded: RedisServer) -> AsyncIterator[Start]:
    """Start access services over one fresh store."""
    await embedded.flush()
    running: list[tuple[Server, Calls]] = []

    async def begin(**options: Any) -> Calls:
        settings = AccessSettings(store_url=embedded.url("access"), service_token=SECRET, **options)
        service = Access(settings)
        server = Server([service], drain_s=2, gate=gate_of(settings, [service]))
        await server.start()
        calls = Calls(server.address, [])
        running.append((server, calls))
        return calls

    yield begin
    for server, calls in running:
        for channel in calls.channels:
            await channel.close()
        await server.stop()


@pytest_asyncio.fixture
async def calls(start: Start) -> Calls:
    """One access service."""
    return await start()
