"""The stores under test: in memory and in every kind of Redis."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.access.bench import LASTING_KEYS, Bench, memory_bench, redis_bench
from tradewind.server.clock import ManualClock
from tradewind.server.redis.subscriber import Subscriber


@pytest_asyncio.fixture
async def bench(server: RedisServer | None) -> AsyncIterator[Bench]:
    """Stores without users; afterwards every key has a TTL or is a user's."""
    if server is None:
        yield memory_bench(ManualClock())
        return
    await server.flush()
    subscriber = Subscriber(server.nodes[0].url_for("access"))
    subscriber.start()
    yield redis_bench(server, ManualClock(), subscriber)
    await subscriber.stop()
    await server.close_clients()
    await assert_no_leaked_keys(server, LASTING_KEYS)
