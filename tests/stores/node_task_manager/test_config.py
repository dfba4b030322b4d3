"""The system's configuration in Redis, in every shard."""

import pytest

from tests.servers import RedisServer
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.stores.keys import Keys
from tradewind.node_task_manager.stores.redis_config import RedisConfigStore
from tradewind.server.redis.client import Client

KEYS = {shard: Keys("trading_flow", shard) for shard in range(3)}
ONLY_FIRST = {0: KEYS[0]}
"""What a writer writes to that dies before it comes to the others."""


@pytest.fixture
def client(redis_server: RedisServer) -> Client:
    return redis_server.connect("node_task_manager")


async def weights(client: Client) -> list[dict[str, float]]:
    """The weights of users in each shard, where scripts look them up."""
    found = [await client.hgetall(keys.user_weights()) for keys in KEYS.values()]
    return [{user.decode(): float(weight) for user, weight in each.items()} for each in found]


async def test_load_spreads_the_config_of_the_first_shard_to_all_shards(
    client: Client,
) -> None:
    before = SystemConfig(user_weights={"ann": 2.0}, version=1)
    following = RedisConfigStore(client, KEYS)
    assert await following.save(before, 0)
    assert await weights(client) == [{"ann": 2.0}] * 3
    config = SystemConfig(user_weights={"bob": 3.0}, version=2)
    assert await RedisConfigStore(client, ONLY_FIRST).save(config, 1)
    assert await following.load() == config
    assert await weights(client) == [{"bob": 3.0}] * 3


async def test_first_load_spreads_the_config_but_keeps_newer_ones(client: Client) -> None:
    older, newer = SystemConfig(version=1), SystemConfig(user_weights={"ann": 2.0}, version=2)
    assert await RedisConfigStore(client, ONLY_FIRST).save(older, 0)
    assert await RedisConfigStore(client, {0: KEYS[1]}).save(newer, 0)
    assert await RedisConfigStore(client, KEYS).load() == older
    assert await weights(client) == [{}, {"ann": 2.0}, {}]
    assert await RedisConfigStore(client, ONLY_FIRST).save(newer, 1)
    assert await RedisConfigStore(client, KEYS).load() == newer
    assert await weights(client) == [{"ann": 2.0}] * 3
