"""The trigger stores under test: in memory and in every kind of Redis."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.trigger.bench import LASTING_KEYS, Bench, memory_store, queue_store, redis_store
from tradewind.server.clock import ManualClock


@pytest_asyncio.fixture
async def bench(server: RedisServer | None, clock: ManualClock) -> AsyncIterator[Bench]:
    """An empty store; afterwards every key has a TTL or an owner."""
    if server is None:
        memory = memory_store(clock)
        yield Bench(memory, clock, queue_store(None, memory))
        return
    await server.flush()
    redis = redis_store(server, clock)
    yield Bench(redis, clock, queue_store(server, redis))
    await server.close_clients()
    await assert_no_leaked_keys(server, LASTING_KEYS)
