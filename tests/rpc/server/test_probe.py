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


def test_a_server_that_is_not_there_fails_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setenv("TRADEWIND_PORT", str(port))
    assert main([]) == 1
    assert f"127.0.0.1:{port} does not answer: UNAVAILABLE" in capsys.readouterr().err
    assert main(["--what"]) == 2


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
