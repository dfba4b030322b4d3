"""A registry, workers that listen, and a node task manager that calls those that are listed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest_asyncio

from tests.rpc.node_task_manager.called_workers.workers import Called, Make, Registry
from tests.rpc.node_task_manager.conftest import Ntm, Start


@asynccontextmanager
async def serving() -> AsyncIterator[Registry]:
    """A registry that lists nobody to begin with."""
    registry = Registry()  # type: ignore[abstract]  # nobody asks it anything else
    await registry.start()
    try:
        yield registry
    finally:
        await registry.stop()


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[Registry]:
    """Lists nobody to begin with."""
    async with serving() as registry:
        yield registry


@pytest_asyncio.fixture
async def second_registry() -> AsyncIterator[Registry]:
    """That of a second node task manager, so that it shows what each of them has heard."""
    async with serving() as registry:
        yield registry


@pytest_asyncio.fixture
async def make(registry: Registry) -> AsyncIterator[Make]:
    """Makes workers that listen; they are listed when the test lists them."""
    made: list[Called] = []

    async def begin(worker_id: str, **options: Any) -> Called:
        made.append(Called(worker_id, **options))
        await made[-1].start()
        return made[-1]

    yield begin
    for each in made:
        await each.stop()


@pytest_asyncio.fixture
async def ntm(start: Start, registry: Registry) -> Ntm:
    """One node task manager that asks the registry."""
    return await start(registry_address=registry.address)
