"""The registry under test: in memory and in every kind of Redis."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.registry.bench import LASTING_KEYS, Bench, memory_bench, redis_bench
from tradewind.registry.domain.limits import Limits
from tradewind.server.clock import ManualClock


@pytest.fixture
def limits() -> Limits:
    """The limits of the store; test modules may override them with smaller ones."""
    return Limits()


@pytest_asyncio.fixture
async def bench(server: RedisServer | None, clock: ManualClock, limits: Limits) -> AsyncIterator[Bench]:
    """An empty registry; afterwards every key has a TTL or is an index that the sweep owns."""
    if server is None:
        yield memory_bench(clock, limits)
        return
    await server.flush()
    yield redis_bench(server, clock, limits)
    await server.close_clients()
    await assert_no_leaked_keys(server, LASTING_KEYS)
