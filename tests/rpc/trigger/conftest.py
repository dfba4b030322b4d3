"""Trigger services behind real channels over one store, and their receivers."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.rpc.trigger.receiving import Cast, Replica
from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.trigger.bench import LASTING_KEYS


@pytest_asyncio.fixture
async def cast(embedded: RedisServer) -> AsyncIterator[Cast]:
    """Starts replicas and receivers over a fresh store, and ends them all."""
    await embedded.flush()
    cast = Cast(embedded)
    yield cast
    await cast.stop_all()
    await embedded.close_clients()
    await assert_no_leaked_keys(embedded, LASTING_KEYS)


@pytest_asyncio.fixture
async def replica(cast: Cast) -> Replica:
    """One trigger service."""
    return await cast.replica()
