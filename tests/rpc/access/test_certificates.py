"""Servers, workers and operators that are known by their certificates, without any tokens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.certificates import Authority
from tests.rpc.access.conftest import refusal
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceStub
from tradewind.api.access.v1.session_pb2 import ROLE_OPERATOR, ROLE_SERVICE, ROLE_USER, ROLE_WORKER, User
from tradewind.api.registry.v1 import registry_service_pb2 as registry_pb2
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.api.registry.v1.worker_pb2 import Worker
from tradewind.grpc_engine.bearer import with_token
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.server.access.gate_settings import gate_of
from tradewind.server.bootstrap import Server, Service
from tradewind.server.channels import open_channel
from tradewind.server.settings import CommonSettings
from tradewind.tls import TlsFiles

if TYPE_CHECKING:
    from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceAsyncStub

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
WHO = pb2.WhoAmIRequest()


def settings_for(files: TlsFiles, roles: str, **others: Any) -> dict[str, Any]:
    return {"tls_ca": str(files.ca), "tls_cert": files.cert, "tls_key": files.key, "tls_roles": roles, **others}


@asynccontextmanager
async def serving(service: Service, settings: CommonSettings) -> AsyncIterator[Server]:
    server = Server([service], drain_s=2, gate=gate_of(settings, [service]), tls=settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def access_serving(store: RedisServer, files: TlsFiles, roles: str) -> AsyncIterator[Server]:
    await store.flush()
    settings = AccessSettings(store_url=store.url("access"), **settings_for(files, roles))
    async with serving(Access(settings), settings) as server:
        yield server


async def test_certificate_identifies_the_caller(embedded: RedisServer, authority: Authority) -> None:
    roles = "registry.tradewind.svc=service,spiffe://cluster/ops/*=operator,*.workers.example=worker"
    async with access_serving(embedded, authority.issue("access"), roles) as server:
        channels: list[grpc.aio.Channel] = []

        def stub(shown: TlsFiles, token: str | None = None) -> "AccessServiceAsyncStub":
            channel = with_token(open_channel(server.address, security=shown), token)
            channels.append(channel)
            return AccessServiceStub(channel)

        try:
            of_registry = authority.issue("registry", "registry.tradewind.svc")
            registry = stub(of_registry)
            operator = stub(authority.issue_uri("olga", "spiffe://cluster/ops/olga"))
            worker = stub(authority.issue("worker", "a.workers.example"))
            stranger = stub(authority.issue("stranger", "registry.elsewhere.example"))
            assert (await registry.WhoAmI(WHO)).role == ROLE_SERVICE
            seen = await operator.WhoAmI(WHO)
            assert (seen.user_id, seen.role) == ("certificate:spiffe://cluster/ops/olga", ROLE_OPERATOR)
            assert (await worker.WhoAmI(WHO)).role == ROLE_WORKER
            assert await refusal(stranger.WhoAmI(WHO)) == (UNAUTHENTICATED, "TOKEN_MISSING")

            user = pb2.SetUserRequest(user=User(user_id="ann", role=ROLE_USER))
            for caller in (operator, worker):
                assert await refusal(caller.SetUser(user)) == (DENIED, "ROLE_TOO_SMALL")
            assert await refusal(stranger.SetUser(user)) == (UNAUTHENTICATED, "TOKEN_MISSING")
            assert not (await operator.ListUsers(pb2.ListUsersRequest())).users, "nothing was done"
            mine = await refusal(operator.CreateSession(pb2.CreateSessionRequest()))
            assert mine == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")

            made = await registry.CreateToken(pb2.CreateTokenRequest(user_id="ann", role=ROLE_USER))
            ann = stub(of_registry, made.token)
            assert (await ann.WhoAmI(WHO)).user_id == "ann", "a token goes before the certificate"
        finally:
            for channel in channels:
                await channel.close()


async def test_server_authenticates_to_access_by_certificate(embedded: RedisServer, authority: Authority) -> None:
    """A registry without a service token can look up the holder of a token; a worker registers by its certificate."""
    files = authority.issue("registry", "registry.tradewind.svc")
    async with access_serving(
        embedded, authority.issue("access"), "registry.tradewind.svc=service,root.example=admin"
    ) as access:
        settings = RegistrySettings(
            store_url=embedded.url("registry"),
            access_address=access.address,
            **settings_for(files, "*.workers.example=worker"),
        )
        async with (
            serving(Registry(settings), settings) as server,
            open_channel(access.address, security=authority.issue("root", "root.example")) as to_access,
            open_channel(server.address, security=authority.issue("worker", "a.workers.example")) as by_worker,
            open_channel(server.address, security=authority.issue("person")) as by_person,
        ):
            made = await AccessServiceStub(to_access).CreateToken(pb2.CreateTokenRequest(user_id="ann", role=ROLE_USER))
            registered = registry_pb2.RegisterWorkerRequest(worker=Worker(worker_id="w", incarnation="i", capacity=1))
            await RegistryServiceStub(by_worker).RegisterWorker(registered)
            ann = RegistryServiceStub(with_token(by_person, made.token))
            listed = registry_pb2.ListWorkersRequest()

            async def answers() -> bool:
                try:
                    return [each.worker_id for each in (await ann.ListWorkers(listed)).workers] == ["w"]
                except grpc.aio.AioRpcError:
                    return False

            await until(answers, "the registry has asked access")
            assert await refusal(ann.RegisterWorker(registered)) == (DENIED, "ROLE_TOO_SMALL")
            nobody = RegistryServiceStub(by_person)
            assert await refusal(nobody.ListWorkers(listed)) == (UNAUTHENTICATED, "TOKEN_MISSING")


async def test_connection_without_a_valid_certificate_fails(
    embedded: RedisServer, authority: Authority, tmp_path: Any
) -> None:
    """Certificates with roles are required, and only those signed by the CA are accepted."""
    other = Authority(tmp_path, "other").issue("other", "registry.tradewind.svc")
    async with access_serving(embedded, authority.issue("access"), "registry.tradewind.svc=service") as server:
        for shown in (TlsFiles(authority.ca), TlsFiles(authority.ca, other.cert, other.key)):
            async with open_channel(server.address, security=shown) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await AccessServiceStub(channel).WhoAmI(WHO, timeout=10)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_access_does_not_start_without_a_way_to_identify_servers(authority: Authority) -> None:
    files = authority.issue("access")
    with pytest.raises(ValueError, match=r"TRADEWIND_SERVICE_TOKEN is required .*TRADEWIND_TLS_ROLES"):
        Access(AccessSettings(**settings_for(files, "*.workers.example=worker")))
