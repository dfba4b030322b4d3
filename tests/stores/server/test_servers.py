"""The stores that tests run on: each test has a fresh key space, and leaked keys are found."""

import pytest

from tests.servers import ACL_USERS, RedisServer, assert_no_leaked_keys


@pytest.mark.parametrize("turn", [1, 2])
async def test_every_test_starts_without_keys(redis_server: RedisServer, turn: int) -> None:
    assert await redis_server.keys() == []
    await redis_server.connect().set(f"trading_flow:{{f{turn}}}:left", "behind")
    assert await redis_server.keys() == [f"trading_flow:{{f{turn}}}:left"]


async def test_leaked_key_without_ttl_is_found_on_every_node(redis_server: RedisServer) -> None:
    client = redis_server.connect()
    await client.set("trading_flow:{f0}:flow:a", "owned")
    await client.set("trading_flow:{s0}:request:1", "bounded", px=60_000)
    await assert_no_leaked_keys(redis_server, allowed=["trading_flow:{f*}:flow:*"])
    for slot in ("f1", "s1", "t1"):
        await client.set(f"trading_flow:{{{slot}}}:lost", "leaked")
    with pytest.raises(AssertionError, match=r"keys without TTL that nobody owns: .*\{f1\}.*\{s1\}.*\{t1\}"):
        await assert_no_leaked_keys(redis_server, allowed=["trading_flow:{f*}:flow:*"])


async def test_each_service_can_log_in(redis_server: RedisServer) -> None:
    services = ["scheduler", "node_task_manager", "registry", "trigger", "access"]
    assert [user.name for user in ACL_USERS] == [*services, "metrics"]
    for user in ACL_USERS:
        assert await redis_server.connect(user.name).ping()
