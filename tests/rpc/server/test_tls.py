"""A server and its clients over TLS: who is let in, who is recognised, and what a rotation changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import Authority
from tests.ports import free_port
from tests.rpc.server.echo_service import EchoClient, EchoService
from tests.waiting import until
from tradewind.client import Client, Unreachable
from tradewind.client.refusals import error_from
from tradewind.server.bootstrap import Server, StartError
from tradewind.server.channels import open_channel
from tradewind.server.interception import Context
from tradewind.server.peer_identity import PeerIdentity, peer_identity
from tradewind.server.settings import TlsSettings
from tradewind.tls import SYSTEM, Security, TlsFiles, renewed_channel


def settings_of(files: TlsFiles, **others: Any) -> TlsSettings:
    return TlsSettings(tls_ca=str(files.ca), tls_cert=files.cert, tls_key=files.key, **others)


@asynccontextmanager
async def serving(files: TlsFiles, service: EchoService | None = None, **others: Any) -> AsyncIterator[Server]:
    server = Server([service or EchoService()], tls=settings_of(files, **others))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(drain_s=0)


async def echoed(server: Server, security: Security) -> str:
    async with open_channel(server.address, security=security) as channel:
        answer = await EchoClient(channel).method("unary_unary", "UnaryUnary")(StringValue(value="hello"), timeout=10)
        return str(answer.value)


async def refusal(server: Server, security: Security) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await echoed(server, security)
    return caught.value


async def test_client_that_trusts_the_ca_is_served(authority: Authority) -> None:
    async with serving(authority.issue("server")) as server:
        assert await echoed(server, TlsFiles(authority.ca)) == "hello"
        assert (await refusal(server, None)).code() is grpc.StatusCode.UNAVAILABLE


async def test_system_cas_are_used_when_no_ca_is_given(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds when only the name in the servers' certificates is given, which implies TLS."""
    named = TlsFiles.find(server_name="gate.example", environment={})
    async with serving(authority.issue("server", "gate.example")) as server:
        for security in (named, TlsFiles(ca=SYSTEM)):
            assert "not signed by a CA that is trusted here" in await connection_error(server, security)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        for security in (named, TlsFiles(ca=SYSTEM)):
            assert await echoed(server, security) == "hello"


async def test_ca_in_a_system_folder_is_trusted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder is as `openssl rehash` makes it, where links may be broken."""
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "5ed36f99.0").symlink_to(authority.ca)
    (folder / "0a775a30.0").symlink_to("gone")
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    async with serving(authority.issue("server")) as server:
        assert await echoed(server, TlsFiles(ca=SYSTEM)) == "hello"


async def connection_error(server: Server, security: Security) -> str:
    """Return the error that a user of the client sees."""
    async with Client(server.address, patience=0, credentials=security) as client:
        with pytest.raises(Unreachable) as caught:
            await client.flow("any").describe()
    return str(caught.value)


async def test_client_error_says_why_there_is_no_connection(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    own = authority.issue("server")
    async with serving(own) as server:
        assert "that is trusted here: set TRADEWIND_TLS_CA" in await connection_error(server, TlsFiles(other.ca))
        assert "is for other names" in await connection_error(
            server, TlsFiles(authority.ca, server_name="door.example")
        )
        assert "closed the connection at once, as a server does that expects TLS" in await connection_error(
            server, None
        )
    async with serving(own, tls_require_client_cert=True) as server:
        assert "or a certificate signed by its CA" in await connection_error(server, TlsFiles(authority.ca))
    plain = Server([EchoService()])
    await plain.start()
    try:
        assert "it speaks plain text, not TLS" in await connection_error(plain, TlsFiles(authority.ca))
    finally:
        await plain.stop(drain_s=0)


async def test_server_name_must_match_the_certificate(authority: Authority) -> None:
    named = authority.issue("server", "gate.example")
    async with serving(named) as server:
        port = server.address.rpartition(":")[2]
        target = f"ipv4:127.0.0.1:{port}"
        async with open_channel(target, security=TlsFiles(authority.ca, server_name="gate.example")) as channel:
            await EchoClient(channel).method("unary_unary", "UnaryUnary")(StringValue(value="x"), timeout=10)
        assert (await refusal(server, TlsFiles(authority.ca, server_name="door.example"))).code() is (
            grpc.StatusCode.UNAVAILABLE
        )


async def test_mtls_accepts_only_certificates_signed_by_the_ca(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("stranger")
    async with serving(authority.issue("server"), tls_require_client_cert=True) as server:
        assert await echoed(server, authority.issue("caller")) == "hello"
        for security in (TlsFiles(authority.ca), TlsFiles(authority.ca, stranger.cert, stranger.key)):
            assert (await refusal(server, security)).code() is grpc.StatusCode.UNAVAILABLE


async def test_handler_sees_the_identity_of_the_caller(authority: Authority) -> None:
    seen: list[PeerIdentity | None] = []

    async def act(text: str, context: Context) -> str:
        seen.append(peer_identity(context))
        return text

    async with serving(authority.issue("server"), EchoService(act), tls_require_client_cert=True) as server:
        await echoed(server, authority.issue("caller", "scheduler.tradewind.svc"))
    async with serving(authority.issue("server"), EchoService(act)) as server:
        await echoed(server, TlsFiles(authority.ca))
    identity, nobody = seen
    assert identity is not None
    assert identity.names[0] == "scheduler.tradewind.svc"
    assert identity.service == "scheduler"
    assert nobody is None


async def test_only_allowed_names_may_call(authority: Authority) -> None:
    files = authority.issue("server")
    async with serving(files, tls_allowed_names="scheduler.*, *.workers.example") as server:
        assert await echoed(server, authority.issue("one", "a.workers.example")) == "hello"
        error = await refusal(server, authority.issue("two", "elsewhere.example"))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "certificate (elsewhere.example" in (error.details() or "")
        assert error_from(error, "", "").reason == "CALLER_NOT_ALLOWED"


async def test_replaced_server_certificate_applies_to_new_connections_only(authority: Authority) -> None:
    service = EchoService()
    async with serving(authority.issue("server", "one.example"), service) as server:
        old = TlsFiles(authority.ca, server_name="one.example")
        async with open_channel(server.address, security=old) as channel:
            call = EchoClient(channel).method("unary_unary", "UnaryUnary")
            await call(StringValue(value="before"), timeout=10)
            authority.issue("server", "two.example")

            await until(lambda: is_served(server, TlsFiles(authority.ca, server_name="two.example")), "it is rotated")
            assert (await call(StringValue(value="after"), timeout=10)).value == "after"
            assert (await refusal(server, old)).code() is grpc.StatusCode.UNAVAILABLE


async def test_client_presents_its_replaced_certificate(authority: Authority) -> None:
    names: list[str] = []

    async def act(text: str, context: Context) -> str:
        identity = peer_identity(context)
        names.append(identity.names[0] if identity else "")
        return text

    mine = authority.issue("caller", "one.example")
    service = EchoService(act)
    async with (
        serving(authority.issue("server"), service, tls_require_client_cert=True) as server,
        open_channel(server.address, security=mine) as channel,
    ):
        client = EchoClient(channel)
        call, stream = client.method("unary_unary", "UnaryUnary"), client.method("unary_stream", "Wait")
        await call(StringValue(value="before"), timeout=10)
        lasting = stream(StringValue(value="open"))
        await lasting.read()
        authority.issue("caller", "two.example")

        async def shown() -> bool:
            await call(StringValue(value="after"), timeout=10)
            return names[-1] == "two.example"

        await until(shown, "the new certificate is shown")
        assert names[0] == "one.example"
        assert not lasting.done(), "what was under way goes on"
        lasting.cancel()


async def test_health_port_serves_plain_text(authority: Authority) -> None:
    port = free_port()
    async with (
        serving(authority.issue("server"), tls_require_client_cert=True, health_port=port),
        open_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await EchoClient(channel).method("unary_unary", "UnaryUnary")(StringValue(value="x"), timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_call_over_a_replaced_certificate_ends_as_unavailable_in_time(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for an answer, or reads a stream, gets this error and is not cancelled."""
    monkeypatch.setattr(renewed_channel, "_LINGER_S", 0.05)
    begun = asyncio.Event()

    async def act(text: str, _context: Context) -> str:
        if text == "wait":
            begun.set()
            await asyncio.Event().wait()
        return text

    mine = authority.issue("server")
    async with serving(mine, EchoService(act)) as server, open_channel(server.address, security=mine) as channel:
        call, wait = (
            EchoClient(channel).method(*each) for each in (("unary_unary", "UnaryUnary"), ("unary_stream", "Wait"))
        )
        read, iterated = wait(StringValue(value="open")), wait(StringValue(value="open"))

        async def iterate() -> None:
            async for _ in iterated:
                pass

        async def ask() -> None:
            await call(StringValue(value="wait"), timeout=60)

        await read.read()
        waiting = [asyncio.create_task(each) for each in (read.read(), iterate(), ask())]
        await begun.wait()
        authority.issue("server")

        async def cut() -> bool:
            await call(StringValue(value="x"), timeout=10)
            return all(each.done() for each in waiting)

        await until(cut, "the calls are cut off")
        for each in waiting:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await each
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (lambda files: settings_of(TlsFiles(files.ca, "absent.pem", files.key)), "cannot read absent.pem"),
        (lambda files: TlsSettings(tls_ca=str(files.ca)), "a server needs a certificate and its key"),
        (lambda files: TlsSettings(tls_require_client_cert=True), "a server needs a certificate and its key"),
        (lambda files: TlsSettings(tls_server_name="gate.example"), "a server needs a certificate and its key"),
    ],
)
async def test_server_does_not_start_with_invalid_tls_files(
    authority: Authority, settings: Callable[[TlsFiles], TlsSettings], message: str
) -> None:
    service = EchoService()
    server = Server([service], tls=settings(authority.issue("server")))
    with pytest.raises(StartError, match=message):
        await server.start()
    assert service.calls[-1] == "stop"


async def is_served(server: Server, security: Security) -> bool:
    try:
        await echoed(server, security)
    except grpc.aio.AioRpcError:
        await asyncio.sleep(0.1)
        return False
    return True
