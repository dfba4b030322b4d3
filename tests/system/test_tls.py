"""The whole stack under mTLS, as users run it: services, workers, clients and commands."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from tests.certificates import Authority
from tests.system.flows import sums
from tests.system.processes import NODES, Shell
from tradewind.cli.app import app
from tradewind.client import Client
from tradewind.standalone import Standalone
from tradewind.standalone.process import welcome
from tradewind.tls import TlsFiles
from tradewind.worker import Worker, load_nodes

RESULT = {"sort": {"even": 10}, "alone": {"numbers": [7, 8, 9]}}


@pytest_asyncio.fixture
async def stack(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standalone]:
    """Every service over an embedded store; callers must show a certificate."""
    files = authority.issue("stack")
    with monkeypatch.context() as environment:
        environment.setenv("TRADEWIND_TLS_CA", str(files.ca))
        environment.setenv("TRADEWIND_TLS_CERT", str(files.cert))
        environment.setenv("TRADEWIND_TLS_KEY", str(files.key))
        environment.setenv("TRADEWIND_TLS_REQUIRE_CLIENT_CERT", "1")
        stack = Standalone(data=tmp_path / "data", port=0)
        async with stack:
            environment.undo()
            yield stack


@pytest.mark.parametrize("listen", [None, "127.0.0.1:0"])
async def test_a_flow_runs_under_mtls(stack: Standalone, authority: Authority, listen: str | None) -> None:
    worker = Worker(load_nodes(NODES), address=stack.address, credentials=authority.issue("worker"), listen=listen)
    async with worker, Client(stack.address, credentials=authority.issue("client")) as client:
        await client.wait_ready()
        await client.register_flow("sums", sums())
        assert await (await client.run_flow("sums")).result(60) == RESULT
        urls = [each.api_url async for each in client.list_workers()]
    assert [bool(url and url.startswith("grpcs://")) for url in urls] == [listen is not None]


async def test_commands_accept_certificates(stack: Standalone, authority: Authority) -> None:
    files = authority.issue("person")
    shell = Shell(stack.address)
    given = ["--tls-ca", str(files.ca), "--tls-cert", str(files.cert), "--tls-key", str(files.key)]

    assert await shell(*given, "flow", "list", "-o", "json") == "[]\n"
    refused = await shell("--tls-ca", str(files.ca), "flow", "list", exit_code=3)
    assert "certificate signed by its CA" in refused
    absent = await shell("--tls-ca", "absent.pem", "flow", "list", exit_code=2)
    assert "cannot read absent.pem" in absent
    assert "--tls-ca" in CliRunner().invoke(app, ["--help"]).output


async def test_welcome_text_names_the_ca_and_asks_for_a_certificate(stack: Standalone, authority: Authority) -> None:
    assert f"  export TRADEWIND_TLS_CA={authority.ca}\n" in welcome(stack)
    assert "  export TRADEWIND_TLS_CERT=YOUR.pem TRADEWIND_TLS_KEY=YOUR.key " in welcome(stack)
    assert "-plaintext" not in welcome(stack)


async def test_caller_without_certificate_is_refused(stack: Standalone, authority: Authority) -> None:
    async with Client(stack.address, patience=0, credentials=TlsFiles(authority.ca)) as stranger:
        with pytest.raises(Exception, match="closed the connection"):
            await stranger.register_flow("sums", sums())
    async with Client(stack.address, credentials=authority.issue("client")) as client:
        assert [each async for each in client.list_flows()] == []
