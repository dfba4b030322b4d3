"""The stores that the contracts are tested with."""

import pytest

from tests.servers import RedisServer, RedisServers, redis_kinds
from tradewind.server.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", *redis_kinds()])
def server(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer | None:
    """The Redis under test, None for memory."""
    return None if request.param == "memory" else redis_servers.get(request.param)
