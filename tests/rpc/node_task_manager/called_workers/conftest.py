"""A registry, workers that listen, and a node task manager that calls the listed ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest_asyncio

from tests.rpc.node_task_manager.called_workers.workers import Called, Make, Registry
from tests.rpc.node_task_manager.conftest import Ntm, Start


@asynccontextmanager
async def serving() -> AsyncIterator[Registry]:
    """A registry that lists nobody at first."""
    registry = Registry()  # type: ignore[abstract]  # it gets no other calls
    await registry.start()
    try:
        yield registry
    finally:
        await registry.stop()


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[Registry]:
    """A registry that lists nobody at first."""
    async with serving() as registry:
        yield registry


@pytest_asyncio.fixture
async def second_registry() -> AsyncIterator[Registry]:
    """The registry of a second node task manager, so that the test can tell what each manager has heard."""
    async with serving() as registry:
        yield registry


@pytest_asyncio.fixture
async def make(registry: Registry) -> AsyncIterator[Make]:
    """Makes workers that listen; the test lists them in the registry."""
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
