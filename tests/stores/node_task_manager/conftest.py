"""The shard under test, in memory and in every kind of Redis."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.servers import RedisServer, RedisServers, redis_kinds
from tests.stores.node_task_manager.shards import Bench, memory_shard, redis_shard
from tradewind.server.clock import ManualClock


@pytest.fixture(params=["memory", *redis_kinds()])
def store(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer | None:
    """The Redis under test, None for memory."""
    return None if request.param == "memory" else redis_servers.get(request.param)


@pytest_asyncio.fixture
async def bench(store: RedisServer | None, clock: ManualClock) -> AsyncIterator[Bench]:
    """A shard without records."""
    if store is None:
        yield Bench(memory_shard(clock), clock)
        return
    await store.flush()
    yield Bench(redis_shard(store, clock), clock)
    await store.close_clients()


@pytest.fixture
def redis_bench(redis_server: RedisServer, clock: ManualClock) -> Bench:
    """A shard in Redis without records."""
    return Bench(redis_shard(redis_server, clock), clock)
