"""`python -m tradewind.server.probe`, run as by a container's health check."""

import asyncio
import sys

import pytest

from tests.ports import free_port
from tradewind.server.bootstrap import Server
from tradewind.server.probe import main, probe


async def test_probe_reports_whether_a_server_is_healthy() -> None:
    server = Server([])
    await server.start()
    try:
        assert await probe(server.address) is None
        assert await probe(server.address, "nobody") is not None
        command = (sys.executable, "-m", "tradewind.server.probe", "--liveness", server.address)
        process = await asyncio.create_subprocess_exec(*command)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        await server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, only one address of 127.0.0.0/8 is there by itself")
async def test_probe_uses_host_and_port_of_the_server_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([], host="127.0.0.2")
    await server.start()
    monkeypatch.setenv("TRADEWIND_HOST", "127.0.0.2")
    monkeypatch.setenv("TRADEWIND_PORT", str(server.port))
    try:
        assert await asyncio.to_thread(main, []) == 0
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("host", "probed"), [(None, "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]")]
)
def test_probe_fails_without_a_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str | None, probed: str
) -> None:
    port = free_port()
    monkeypatch.setenv("TRADEWIND_PORT", str(port))
    if host is not None:
        monkeypatch.setenv("TRADEWIND_HOST", host)
    assert main([]) == 1
    assert f"{probed}:{port} does not answer: UNAVAILABLE" in capsys.readouterr().err


def test_wrong_usage_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--what"]) == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TRADEWIND_PORT", "all", "TRADEWIND_PORT: Input should be a valid integer"),
        ("TRADEWIND_TLS_CA", "absent.pem", "cannot read absent.pem"),
    ],
)
def test_probe_fails_with_a_reason_for_invalid_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    assert main([]) == 1
    assert message in capsys.readouterr().err
