"""The scheduler's stores under test: in memory and in every kind of Redis."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.scheduler.bench import LASTING_KEYS, Bench, memory_stores, redis_stores
from tradewind.scheduler.stores.keys import ACL
from tradewind.server.clock import ManualClock
from tradewind.server.redis.subscriber import Subscriber


@pytest_asyncio.fixture
async def bench(server: RedisServer | None, clock: ManualClock) -> AsyncIterator[Bench]:
    """Empty stores; afterwards every key has a TTL or an owner."""
    if server is None:
        made = Bench(memory_stores(clock, publishes_ends=lambda: made.has_listeners), clock)
        yield made
        return
    await server.flush()
    made = Bench(redis_stores(server, clock, publishes_ends=lambda: made.has_listeners), clock)
    yield made
    await server.close_clients()
    await assert_no_leaked_keys(server, LASTING_KEYS)


@pytest_asyncio.fixture
async def subscriber(server: RedisServer | None) -> AsyncIterator[Subscriber | None]:
    """The subscriber of another replica than the bench's; None in memory, where all replicas hear the same messages."""
    if server is None:
        yield None
        return
    subscriber = Subscriber(server.url(ACL.name))
    subscriber.start()
    yield subscriber
    await subscriber.stop()
