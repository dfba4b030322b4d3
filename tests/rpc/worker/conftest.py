"""The other side of every worker in these tests."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.rpc.worker.engine import Engine, started_engine


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    """A node task manager and registry on a free port."""
    engine = await started_engine()
    yield engine
    await engine.stop()
