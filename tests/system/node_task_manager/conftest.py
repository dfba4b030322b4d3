"""A store for each test, and a registry for all of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.ports import free_port
from tests.servers import RedisServers
from tests.system.node_task_manager.stack import Process, Stack


@pytest.fixture(scope="session")
def registry(redis_servers: RedisServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry, which may still be starting: workers retry."""
    port = free_port()
    process = Process(
        tmp_path_factory.mktemp("registry") / "registry.log",
        "tradewind.registry",
        TRADEWIND_STORE_URL=redis_servers.get("embedded").url("registry"),
        TRADEWIND_PORT=str(port),
    )
    yield f"127.0.0.1:{port}"
    process.close()


@pytest_asyncio.fixture
async def stack(tmp_path: Path, registry: str) -> AsyncIterator[Stack]:
    """A store, with nothing else started yet."""
    stack = Stack(tmp_path, registry)
    await stack.store.start()
    yield stack
    await stack.close()
