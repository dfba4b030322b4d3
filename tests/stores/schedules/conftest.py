"""The scheduler and the trigger service together, over memory and one Redis; other tests compare all kinds."""

from collections.abc import AsyncIterator, Callable, Collection

import pytest
import pytest_asyncio

from tests.servers import RedisServer, RedisServers, assert_no_leaked_keys
from tests.stores.scheduler import bench as scheduler
from tests.stores.schedules.clockwork import Clockwork
from tests.stores.trigger import bench as trigger
from tradewind.scheduler.stores.memory import MemoryStores
from tradewind.scheduler.stores.memory.data import Data
from tradewind.server.clock import ManualClock

Make = Callable[..., Clockwork]


@pytest.fixture(params=["memory", "embedded"])
def server(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer | None:
    """The Redis under test, None for memory."""
    return None if request.param == "memory" else redis_servers.get(request.param)


@pytest_asyncio.fixture
async def make(server: RedisServer | None) -> AsyncIterator[Make]:
    """Makes a clockwork over empty stores: `make(cycle_ms=90_000, at=..., flows=["a", "b"])`."""

    def made(cycle_ms: int = 3_000, at: int = 1_700_000_000_000, flows: Collection[str] = ("f",)) -> Clockwork:
        clock = ManualClock(at)
        if server is None:
            data, triggers = Data(clock), trigger.memory_store(clock)
            queues = trigger.queue_store(None, triggers)
            return Clockwork(clock, triggers, queues, lambda: MemoryStores(clock, data=data), cycle_ms, flows)
        here, triggers = server, trigger.redis_store(server, clock)
        queues = trigger.queue_store(server, triggers)
        return Clockwork(clock, triggers, queues, lambda: scheduler.redis_stores(here, clock), cycle_ms, flows)

    if server is not None:
        await server.flush()
    yield made
    if server is not None:
        await server.close_clients()
        await assert_no_leaked_keys(server, (*scheduler.LASTING_KEYS, *trigger.LASTING_KEYS))
