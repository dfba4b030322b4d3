"""A whole stack with a worker, and a way to start processes for tests that need them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system.processes import NODES, Processes, Shell, running_processes
from tradewind.client import Client
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes


@pytest_asyncio.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Standalone]:
    """Every service over an embedded store."""
    async with Standalone(data=tmp_path / "data", port=0) as stack:
        yield stack


@pytest_asyncio.fixture
async def worker(stack: Standalone) -> AsyncIterator[Worker]:
    """A worker with the nodes of these tests."""
    async with Worker(load_nodes(NODES), address=stack.address) as worker:
        yield worker


@pytest_asyncio.fixture
async def client(stack: Standalone, worker: Worker) -> AsyncIterator[Client]:
    """A client of the stack, which has a worker."""
    async with Client(stack.address) as client:
        yield client


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts commands, and ends them when the test ends."""
    with running_processes(tmp_path) as processes:
        yield processes


@pytest.fixture
def shell(stack: Standalone, worker: Worker) -> Shell:
    """Commands against the stack, which has a worker."""
    return Shell(stack.address)
