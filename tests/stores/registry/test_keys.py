"""The keys in Redis and their TTLs, under the service's own ACL user."""

import pytest
from redis.exceptions import NoPermissionError

from tests.servers import RedisServer
from tests.stores.registry.bench import LIFETIMES, PREFIX, Bench, a_worker, redis_bench
from tradewind.registry.domain.limits import Limits
from tradewind.registry.domain.worker import WorkerRecord
from tradewind.registry.stores.keys import ACL, Keys
from tradewind.registry.stores.redis import RedisRegistry
from tradewind.server.clock import ManualClock, ScriptTime, SystemClock

KEYS = Keys(PREFIX)
KEPT = LIFETIMES.time_to_live + LIFETIMES.retention


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    return redis_bench(redis_server, ManualClock())


async def test_every_key_carries_the_tag_and_only_indexes_lack_a_ttl(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register(a_worker("w", "average", api_url="worker:9000"))
    assert await redis_server.keys() == sorted(
        [KEYS.worker("w"), KEYS.node_type("average"), KEYS.offering("average"), *KEYS.indexes]
    )
    assert KEYS.worker("w") == "trading_flow:{registry}:workers:w"
    assert await redis_server.keys_without_ttl() == sorted(KEYS.indexes)
    admin = redis_server.connect()
    assert KEPT - 10_000 < await admin.pttl(KEYS.worker("w")) <= KEPT
    assert KEPT - 10_000 < await admin.pttl(KEYS.node_type("average")) <= KEPT
    assert LIFETIMES.time_to_live - 10_000 < await admin.pttl(KEYS.offering("average")) <= LIFETIMES.time_to_live


async def test_heartbeat_renews_every_ttl(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register(a_worker("w", "average"))
    admin = redis_server.connect()
    renewed = [KEYS.worker("w"), KEYS.node_type("average"), KEYS.offering("average")]
    for key in renewed:
        await admin.expire(key, 5)
    await bench.beat(a_worker("w", "average"))
    for key in renewed:
        assert await admin.pttl(key) > 10_000


async def test_heartbeat_restores_a_lost_worker_record(bench: Bench, redis_server: RedisServer) -> None:
    worker = a_worker("w", "average", running=1, labels=(("zone", "a"),))
    await bench.register(worker)
    whole = await redis_server.connect().hgetall(KEYS.worker("w"))
    await redis_server.connect().delete(KEYS.worker("w"))
    assert not (await bench.beat(worker)).register_again
    assert await redis_server.connect().hgetall(KEYS.worker("w")) == whole
    await redis_server.flush()
    assert (await bench.beat(worker)).register_again
    assert await redis_server.connect().hgetall(KEYS.worker("w")) == whole


@pytest.mark.parametrize("name", ["last_heartbeat", "capacity", "supported_nodes", "status", "replaced"])
async def test_worker_whose_record_lacks_a_field_is_restored_and_hides_nobody(
    bench: Bench, redis_server: RedisServer, name: str
) -> None:
    for worker_id in ("broken", "whole"):
        await bench.register(a_worker(worker_id, "average"))
    admin = redis_server.connect()
    await admin.execute_command("HDEL", KEYS.worker("broken"), name)
    assert await bench.ids() == ["whole"]
    assert await bench.available("average") == ["whole"]
    await bench.beat(a_worker("broken", "average"))
    assert await bench.ids() == ["broken", "whole"]


async def test_worker_fields_are_named_as_in_the_specification(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register(a_worker("w", "average", "report", api_url="worker:9000"))
    fields = await redis_server.connect().hgetall(KEYS.worker("w"))
    expected = {
        b"id": b"w",
        b"api_url": b"worker:9000",
        b"supported_nodes": b'["average","report"]',
        b"status": b"active",
        b"last_heartbeat": str(bench.clock.now_ms()).encode(),
    }
    assert expected.items() <= fields.items()


async def test_sweep_leaves_no_keys_of_lapsed_workers(bench: Bench, redis_server: RedisServer) -> None:
    for number in range(5):
        await bench.register(a_worker(f"w{number}", f"type{number}"))
        await bench.workers.drain(f"w{number}")
    await bench.workers.deregister("w0")
    bench.clock.advance(KEPT)
    while await bench.sweeper.sweep():
        pass
    admin = redis_server.connect()
    for number in range(1, 5):
        await admin.expire(KEYS.offering(f"type{number}"), 0)
    assert await redis_server.keys() == []


async def test_registry_user_may_touch_only_its_own_keys(redis_server: RedisServer) -> None:
    assert ACL.name == "registry"
    client = redis_server.connect("registry")
    for key in ("trading_flow:{s0}:x", "trading_flow:{f0}:x", "x"):
        with pytest.raises(NoPermissionError):
            await client.set(key, 1)


async def test_script_time_uses_the_clock_of_the_server(redis_server: RedisServer) -> None:
    registry = RedisRegistry(redis_server.connect("registry"), KEYS, ScriptTime(), LIFETIMES, Limits())
    record = await registry.workers.register(a_worker("w"), [])
    assert isinstance(record, WorkerRecord)
    assert record.alive
    # A test's server runs on this machine.
    assert abs(record.registered_at - SystemClock().now_ms()) < 10_000
