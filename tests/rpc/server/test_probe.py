"""`python -m tradewind.server.probe`, run as by a container's health check."""

import asyncio
import sys

import pytest

from tests.ports import free_port
from tradewind.server.bootstrap import Server
from tradewind.server.probe import main, probe


async def test_it_says_whether_a_server_is_well() -> None:
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
async def test_it_asks_where_the_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([], host="127.0.0.2")
    await server.start()
    monkeypatch.setenv("TRADEWIND_HOST", "127.0.0.2")
    monkeypatch.setenv("TRADEWIND_PORT", str(server.port))
    try:
        assert await asyncio.to_thread(main, []) == 0
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("host", "asked"), [(None, "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]")]
)
def test_a_server_that_is_not_there_fails_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str | None, asked: str
) -> None:
    port = free_port()
    monkeypatch.setenv("TRADEWIND_PORT", str(port))
    if host is not None:
        monkeypatch.setenv("TRADEWIND_HOST", host)
    assert main([]) == 1
    assert f"{asked}:{port} does not answer: UNAVAILABLE" in capsys.readouterr().err


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--what"]) == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TRADEWIND_PORT", "all", "TRADEWIND_PORT: Input should be a valid integer"),
        ("TRADEWIND_TLS_CA", "absent.pem", "cannot read absent.pem"),
    ],
)
def test_settings_that_are_wrong_fail_it_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)
    assert main([]) == 1
    assert told in capsys.readouterr().err
