"""The shard under test, in memory and in every kind of Redis."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.servers import RedisServer
from tests.stores.node_task_manager.invariants import check_no_key_leaks
from tests.stores.node_task_manager.shards import Bench, memory_shard, redis_shard
from tests.stores.node_task_manager.wards import Ward
from tradewind.server.clock import ManualClock


@pytest_asyncio.fixture
async def store(server: RedisServer | None) -> AsyncIterator[RedisServer | None]:
    """The Redis under test without keys, None for memory; afterwards every key has a TTL or an owner."""
    if server is None:
        yield None
        return
    await server.flush()
    yield server
    await server.close_clients()
    await check_no_key_leaks(server)


@pytest_asyncio.fixture
async def redis_server(redis_server: RedisServer) -> AsyncIterator[RedisServer]:
    """A store without keys, once per kind of store; afterwards every key has a TTL or an owner."""
    yield redis_server
    await check_no_key_leaks(redis_server)


@pytest.fixture
def bench(store: RedisServer | None, clock: ManualClock) -> Bench:
    """A shard without records."""
    return Bench(memory_shard(clock) if store is None else redis_shard(store, clock), clock)


@pytest.fixture
def redis_bench(redis_server: RedisServer, clock: ManualClock) -> Bench:
    """A shard in Redis without records."""
    return Bench(redis_shard(redis_server, clock), clock)


@pytest_asyncio.fixture
async def ward(embedded: RedisServer) -> AsyncIterator[Ward]:
    server, clock = embedded, ManualClock()
    await server.flush()
    shard = redis_shard(server, clock)
    yield Ward(shard, clock, server, shard, server.connect())
    await server.close_clients()
