"""More calls at once than the store can answer in time."""

import asyncio

import pytest
from redis.exceptions import TimeoutError

from tests.servers import RedisServer
from tests.stores.registry.bench import Bench, a_worker, redis_bench
from tradewind.registry.stores import redis as stores
from tradewind.server.clock import ManualClock

AT_ONCE = stores._SCRIPTS_AT_ONCE


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    return redis_bench(redis_server, ManualClock())


async def set_writable(server: RedisServer, writable: bool) -> None:
    """Let the store answer writes, or not."""
    for node in server.nodes:
        await server.on_node(node, "CLIENT", *(["UNPAUSE"] if writable else ["PAUSE", "60000", "WRITE"]))


def begin_beats(bench: Bench, count: int) -> list[asyncio.Task[object]]:
    """Begin a heartbeat of each of so many workers."""
    return [asyncio.create_task(bench.workers.heartbeat(a_worker(f"w{number:02}"))) for number in range(count)]


async def test_call_given_up_before_its_turn_costs_the_store_nothing(bench: Bench, redis_server: RedisServer) -> None:
    assert await bench.ids() == []
    await set_writable(redis_server, False)
    beats = begin_beats(bench, AT_ONCE + 3)
    await asyncio.sleep(0)
    for beat in beats[AT_ONCE:]:
        beat.cancel()
    await set_writable(redis_server, True)
    await asyncio.gather(*beats, return_exceptions=True)
    assert await bench.ids() == [f"w{number:02}" for number in range(AT_ONCE)]


async def test_calls_beyond_a_slow_store_fail_as_in_an_outage_and_later_ones_go_on(
    bench: Bench, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_writable(redis_server, False)
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_TURN_S", 0.1)
        beats = begin_beats(bench, AT_ONCE + 3)
        late = await asyncio.gather(*beats[AT_ONCE:], return_exceptions=True)
    assert {type(each) for each in late} == {TimeoutError}
    await set_writable(redis_server, True)
    await asyncio.gather(*beats[:AT_ONCE])
    await asyncio.gather(*begin_beats(bench, 3 * AT_ONCE))
    assert len(await bench.ids()) == 3 * AT_ONCE
