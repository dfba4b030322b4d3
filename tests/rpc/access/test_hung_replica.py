"""A server that asks an access service of which one replica hangs."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from tests.ports import free_port
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceServicer, add_AccessServiceServicer_to_server
from tradewind.api.access.v1.session_pb2 import Role
from tradewind.server.access import remote
from tradewind.server.access.remote import RemoteAuthority
from tradewind.server.channels import open_channel

CALLS = 20


class Replica(AccessServiceServicer):
    """Answers that every token is ann's, or does not answer at all."""

    def __init__(self) -> None:
        self.hangs = False
        self.asked = 0

    async def Authorize(self, _request: pb2.AuthorizeRequest, _context: object) -> pb2.AuthorizeResponse:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return pb2.AuthorizeResponse(user_id="ann", role=Role.ROLE_USER)


@pytest_asyncio.fixture
async def replicas(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[list[Replica], RemoteAuthority]]:
    """Two replicas behind one address, both in use, and a client of theirs."""
    # A busy machine must not make replicas that answer look as if they hung.
    monkeypatch.setattr(remote, "_CALL_S", 60.0)
    monkeypatch.setattr(remote, "_HEDGE_AFTER_S", 30.0)
    replicas, ports = [Replica(), Replica()], [free_port(), free_port()]  # type: ignore[abstract]
    servers = [grpc.aio.server(options=[("grpc.so_reuseport", 0)]) for _ in replicas]
    for server, replica, port in zip(servers, replicas, ports, strict=True):
        add_AccessServiceServicer_to_server(replica, server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
    authority = RemoteAuthority(open_channel("ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)))
    while not all(replica.asked for replica in replicas):
        await authority.authorize("known")
    yield replicas, authority
    await authority.close()
    for server in servers:
        await server.stop(None)


async def ask_all(authority: RemoteAuthority) -> set[str]:
    """Ask about many tokens at once, and return their holders."""
    answers = await asyncio.gather(*(authority.authorize(f"digest {at}") for at in range(CALLS)))
    return {answer.user_id for answer in answers}


async def test_calls_to_a_hung_replica_are_answered_by_another(
    replicas: tuple[list[Replica], RemoteAuthority], monkeypatch: pytest.MonkeyPatch
) -> None:
    (hung, _), authority = replicas
    hung.hangs = True
    monkeypatch.setattr(remote, "_HEDGE_AFTER_S", 0.3)
    assert await ask_all(authority) == {"ann"}


async def test_only_first_calls_wait_for_a_hung_replica(
    replicas: tuple[list[Replica], RemoteAuthority], monkeypatch: pytest.MonkeyPatch
) -> None:
    (hung, _), authority = replicas
    hung.hangs = True
    monkeypatch.setattr(remote, "_HEDGE_AFTER_S", 0.3)
    await ask_all(authority)
    monkeypatch.setattr(remote, "_HEDGE_AFTER_S", 3600.0)
    assert await ask_all(authority) == {"ann"}


async def test_healthy_replicas_are_asked_once_per_call(replicas: tuple[list[Replica], RemoteAuthority]) -> None:
    both, authority = replicas
    before = sum(replica.asked for replica in both)
    await ask_all(authority)
    assert sum(replica.asked for replica in both) - before == CALLS
