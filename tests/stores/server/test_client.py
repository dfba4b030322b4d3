"""Redis clients: every kind of URL, ACL users, refused policies; no command is repeated."""

import asyncio
import os
import signal

import pytest
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import NoPermissionError, RedisClusterException, RedisError
from redis.exceptions import TimeoutError as StoreTimeoutError

from tests.ports import free_port
from tests.servers import RedisServer, RedisServers
from tests.waiting import until
from tradewind.server.redis.checks import UnsafeStore, require_reachable, require_safe_policy
from tradewind.server.redis.client import connect
from tradewind.server.redis.connections import ReplicasMissing

# Commands that reach beyond a service's own keys.
FORBIDDEN_COMMANDS = [
    ("SCRIPT", "FLUSH"),
    ("FUNCTION", "FLUSH"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("CONFIG", "GET", "maxmemory"),
    ("KEYS", "*"),
    ("SHUTDOWN",),
    ("SCAN", "0"),
    ("SELECT", "0"),
    ("RANDOMKEY",),
    ("ACL", "LIST"),
]


async def test_values_are_returned_as_bytes(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler")
    await client.hset("trading_flow:{f1}:h", mapping={"a": 1, "b": "zwei"})
    assert await client.hgetall("trading_flow:{f1}:h") == {b"a": b"1", b"b": b"zwei"}
    assert await client.hget("trading_flow:{f1}:h", "none") is None


async def test_service_may_not_touch_keys_under_another_prefix(redis_server: RedisServer) -> None:
    client = redis_server.connect("node_task_manager")
    assert await client.set("trading_flow:{s0}:run:a", "1")
    with pytest.raises(NoPermissionError):
        await client.get("other:{s0}:run:a")


@pytest.mark.parametrize("command", FORBIDDEN_COMMANDS, ids=" ".join)
async def test_service_may_not_run_commands_that_affect_all_keys(
    redis_server: RedisServer, command: tuple[str, ...]
) -> None:
    address = redis_server.nodes[0].url_for("scheduler")
    client = connect(address)
    try:
        with pytest.raises(NoPermissionError):
            await client.execute_command(*command)
    finally:
        await client.end()


async def test_a_service_publishes_only_on_its_own_channels(redis_server: RedisServer) -> None:
    client = redis_server.connect("node_task_manager")
    assert await client.publish("trading_flow:{s0}:wake", "1") == 0
    with pytest.raises(NoPermissionError):
        await client.publish("trading_flow:{f0}:wake", "1")


async def test_callers_wait_for_a_connection_when_all_are_in_use(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler", max_connections=2)
    keys = [f"trading_flow:{{f0}}:{n}" for n in range(50)]
    assert all(await asyncio.gather(*(client.set(key, "1") for key in keys)))


async def test_slow_command_times_out_and_is_not_repeated(redis_server: RedisServer) -> None:
    client = redis_server.connect(socket_timeout_s=0.05)
    key = "trading_flow:{f0}:slow"

    async def connected() -> bool:
        try:
            return await client.get(key) is None
        except (RedisError, RedisClusterException):
            return False

    await until(connected, "there is a connection, which to get may take longer than a command")
    # The script counts, then keeps the server busy until the answer comes too late.
    script = "redis.call('INCR', KEYS[1]) for i = 1, 3e7 do end return 1"
    with pytest.raises(StoreTimeoutError):
        await client.eval(script, 1, key)
    patient = redis_server.connect()
    assert await patient.get(key) == b"1"


async def test_store_with_an_eviction_policy_is_refused(redis_server: RedisServer) -> None:
    admin = redis_server.connect()
    await require_safe_policy(admin)
    for node in redis_server.nodes[-1:]:
        await redis_server.on_node(node, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnsafeStore, match=r'maxmemory-policy is "allkeys-lru"\): set it to "noeviction"'):
            await require_safe_policy(admin)
        # A service's user may not look at the policy; that is up to the operator.
        await require_safe_policy(redis_server.connect("scheduler"))
    finally:
        for node in redis_server.nodes[-1:]:
            await redis_server.on_node(node, "CONFIG", "SET", "maxmemory-policy", "noeviction")


@pytest.fixture
def cluster(redis_servers: RedisServers) -> RedisServer:
    """Three masters; not started in an async fixture, since no other loop can run within its loop."""
    return redis_servers.get("cluster")


async def test_node_of_a_cluster_that_is_away_keeps_nobody_from_starting(cluster: RedisServer) -> None:
    admin, frozen = cluster.connect(socket_timeout_s=1.0), cluster.nodes[0].pid
    assert await admin.get("trading_flow:{f0}:n") is None
    assert frozen is not None
    os.kill(frozen, signal.SIGSTOP)
    try:
        await require_safe_policy(admin)
    finally:
        os.kill(frozen, signal.SIGCONT)
        await cluster.close_clients()


async def test_write_refused_for_want_of_replicas_raises_replicas_missing(redis_server: RedisServer) -> None:
    """However the command is sent."""
    admin, key = redis_server.connect(), "trading_flow:{f0}:kept"
    for node in redis_server.nodes:
        await redis_server.on_node(node, "CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        with pytest.raises(ReplicasMissing, match="Not enough good replicas to write"):
            await admin.set(key, "1")
        with pytest.raises(ReplicasMissing, match="Not enough good replicas to write"):
            await admin.call(key, "SET", key, "1")
    finally:
        for node in redis_server.nodes:
            await redis_server.on_node(node, "CONFIG", "SET", "min-replicas-to-write", "0")


async def test_wrong_password_is_reported_with_the_settings_to_check(redis_server: RedisServer) -> None:
    client = redis_server.connect("scheduler", password="wrong")
    with pytest.raises(ConnectionError, match=r"the store refuses the user: .*\w; check TRADEWIND_STORE_USER"):
        await require_reachable(client)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_unreachable_store_is_an_error_at_once(scheme: str) -> None:
    client = connect(f"{scheme}://127.0.0.1:{free_port()}")
    try:
        with pytest.raises((RedisError, RedisClusterException)) as caught:
            await client.ping()
        assert isinstance(caught.value, StoreConnectionError | RedisClusterException)
        with pytest.raises(
            ConnectionError, match=r"the store does not answer: .*; start it, or set TRADEWIND_STORE_URL"
        ):
            await require_reachable(client)
    finally:
        await client.end()


async def test_unreachable_sentinels_are_an_error_at_once() -> None:
    client = connect(f"redis+sentinel://127.0.0.1:{free_port()}/primary")
    try:
        with pytest.raises(StoreConnectionError, match="No master found for 'primary'"):
            await client.ping()
        with pytest.raises(ConnectionError, match=r"^no Sentinel names a master: check .* TRADEWIND_STORE_URL"):
            await require_reachable(client)
    finally:
        await client.end()
