"""The store's time, as reported to Python."""

import time

import pytest

from tests.clocks import set_clock
from tests.ports import free_port
from tests.servers import RedisServer
from tradewind.server.redis.client import connect
from tradewind.server.redis.store_clock import StoreClock


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
async def test_clock_follows_the_store_rather_than_the_machine(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    set_clock(monkeypatch, ahead_s)
    client = redis_server.connect("scheduler")
    clock = StoreClock(client)
    assert abs(clock.now_ms() - time.time_ns() // 1_000_000) < 60_000
    await clock.sync()
    seconds, _ = await client.call("", "TIME")
    assert abs(clock.now_ms() - int(seconds) * 1000) < 60_000
    monkeypatch.undo()
    assert abs(clock.now_ms() - time.time_ns() // 1_000_000) < 60_000


async def test_unreachable_store_is_an_error(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    await client.end()
    with pytest.raises(ConnectionError, match="the store does not answer"):
        await StoreClock(client).sync()


async def test_unreachable_cluster_is_an_error() -> None:
    client = connect(f"redis+cluster://127.0.0.1:{free_port()}")
    try:
        with pytest.raises(ConnectionError, match="the store does not answer"):
            await StoreClock(client).sync()
    finally:
        await client.end()
