"""The keys and fields in Redis, and how long they last."""

import json

import pytest
from msgspec import structs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import MINUTE, Bench, redis_stores, request_of
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.log_line import LogLevel, LogText
from tradewind.scheduler.domain.run_update import RunUpdate
from tradewind.scheduler.stores.keys import Keys
from tradewind.server.clock import ManualClock

KEYS = Keys()
DAY = 24 * 3600 * 1000


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    return Bench(redis_stores(redis_server, clock), clock)


async def fields_of(server: RedisServer, key: str) -> dict[str, str]:
    found = await server.connect().hgetall(key)
    return {name.decode(): value.decode() for name, value in found.items()}


async def test_a_flow_has_the_fields_of_the_specification(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register("trading_decision_flow", structure_json='{"component_count":1}')
    await bench.begun(bench.request("trading_decision_flow"))
    fields = await fields_of(redis_server, KEYS.flow("trading_decision_flow"))
    expected = {
        "id": "trading_decision_flow",
        "status": "registered",
        "last_cycle": "0",
        "next_execution": "0",
        "created_at": str(bench.now),
    }
    assert expected.items() <= fields.items()
    assert json.loads(fields["config"]) == {"interval": 60}
    assert json.loads(fields["structure"]) == {"component_count": 1}


async def test_a_cycle_has_the_fields_of_the_specification(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register()
    begun = bench.now
    state = await bench.begun()
    key = KEYS.run(*state.name)
    running = {"flow_id": "f", "cycle": "0", "status": "running", "start_time": str(begun)}
    fields = await fields_of(redis_server, key)
    assert running.items() <= fields.items()
    assert "end_time" not in fields
    bench.clock.advance(7)
    await bench.end(state, CycleStatus.FAILED)
    ended = {**running, "status": "failed", "end_time": str(begun + 7)}
    assert ended.items() <= (await fields_of(redis_server, key)).items()


async def test_cycle_expires_seven_days_after_it_ended(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register()
    state = await bench.begun()
    line = LogText(LogLevel.WARNING, "late")
    (written,) = await bench.stores.states.update_many([RunUpdate(state, (), log=line)])
    parts = (KEYS.run(*state.name), KEYS.logs("f", 0))
    admin = redis_server.connect()
    assert [await admin.pttl(key) for key in parts] == [-1, -1]
    await bench.end(structs.replace(state, version=written.version))
    for key in parts:
        assert 7 * DAY - 10_000 < await admin.pttl(key) <= 7 * DAY, key


async def test_requests_and_tombstones_expire(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register()
    await bench.end(await bench.begun(bench.request(request=request_of("r"))))
    (request,) = [key for key in await redis_server.keys() if ":request:" in key]
    admin = redis_server.connect()
    assert DAY - 10_000 < await admin.pttl(request) <= DAY
    await bench.remove()
    (tombstone,) = await redis_server.keys()
    assert tombstone.endswith(":tombstone:f")
    assert 3_590_000 < await admin.pttl(tombstone) <= 3_600_000


async def test_request_is_remembered_for_its_lifetime(bench: Bench, redis_server: RedisServer) -> None:
    """When its run continues under another number, the request is remembered for the remaining time, not longer."""
    await bench.register()
    admin, minute = redis_server.connect(), request_of("r", lifetime_ms=MINUTE)
    first = await bench.begun(bench.request(run_id="moved", request=minute))
    (key,) = [key for key in await redis_server.keys() if ":request:" in key]
    assert 0 < await admin.pttl(key) <= MINUTE
    await admin.execute_command("PEXPIRE", key, MINUTE // 2)
    moved = await bench.begun(bench.request(run_id="moved", replaces=first.name.cycle))
    assert 0 < await admin.pttl(key) <= MINUTE // 2
    again = await bench.begin(bench.request(request=minute))
    assert (again.outcome, again.run) == (BeginOutcome.DUPLICATE, moved.name)
