"""The metrics of a server's process: their endpoint, and the counts of calls."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.metrics import scrape
from tests.ports import free_port
from tests.rpc.server.echo_service import EchoClient, EchoService
from tests.waiting import until
from tradewind.server import metrics
from tradewind.server.bootstrap import Server
from tradewind.server.channels import open_channel
from tradewind.server.metrics import OTHER, SWITCH, BoundedNames, MetricsEndpoint


async def test_calls_are_counted_while_the_endpoint_is_open() -> None:
    port = free_port()
    endpoint = MetricsEndpoint("127.0.0.1", port)
    await endpoint.open()
    server = Server([EchoService()])
    try:
        before = await scrape(port)
        await server.start()
        async with open_channel(server.address) as channel:
            client = EchoClient(channel)
            assert await client.call("UnaryUnary", "x") == ["x"]
            for number in range(3):
                made_up: Any = channel.unary_unary(f"/tradewind.test.Echo/MadeUp{number}")
                with pytest.raises(Exception, match="no method"):
                    await made_up(b"")
        name = "tradewind_rpc_seconds_count"

        async def has_counted() -> bool:
            # The echo service has no descriptor, so its method names are not used as labels either.
            now = await scrape(port)
            labels_of_codes = ({"method": "unknown", "code": code} for code in ("OK", "UNIMPLEMENTED"))
            return [now.sum(name, **labels) - before.sum(name, **labels) for labels in labels_of_codes] == [1, 3]

        # A call is counted once its caller has the answer.
        await until(has_counted, "all four calls are counted")
        after = await scrape(port)
        assert not any("MadeUp" in label for _, labels, _ in after.samples for label in labels.values())
        assert after.sum("tradewind_ready", service="tradewind.test.Echo") == 1
    finally:
        await server.stop()
        await endpoint.close()
    assert not SWITCH.on


async def test_a_scraper_that_hangs_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "_SCRAPE_S", 0.05)
    port = free_port()
    endpoint = MetricsEndpoint("127.0.0.1", port)
    await endpoint.open()
    try:
        for begun in (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            assert await asyncio.wait_for(reader.read(), 30) == b"", "it is closed without an answer"
            writer.close()
        assert (await scrape(port)).samples
    finally:
        await endpoint.close()
    assert capfd.readouterr().err == ""


async def test_metrics_are_off_without_a_port() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0)
    await endpoint.open()
    assert not SWITCH.on
    await endpoint.close()


def test_unusable_metrics_port_ends_the_server_with_one_message() -> None:
    settings = {"TRADEWIND_METRICS_HOST": "192.0.2.1", "TRADEWIND_METRICS_PORT": str(free_port())}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.rpc.server.echo_app"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "echo cannot start: cannot serve metrics on 192.0.2.1:" in ran.stderr


def test_number_of_user_chosen_label_values_is_bounded() -> None:
    names = BoundedNames(limit=2)
    assert [names(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
