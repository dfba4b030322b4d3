"""A fake stack and a client of it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.unit.client.clock import Clock
from tests.unit.client.fake_stack import FakeStack
from tradewind.client import Client, absence


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[FakeStack]:
    """A fake stack with the flow `momentum`."""
    stack = FakeStack()
    stack.scheduler.add_flow("momentum")
    await stack.start()
    yield stack
    await stack.stop()


@pytest_asyncio.fixture
async def client(stack: FakeStack) -> AsyncIterator[Client]:
    """A client of the fake stack that repeats calls for up to 5 s."""
    async with Client(stack.address, patience=5) as client:
        yield client


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock with which absences are measured."""
    clock = Clock()
    monkeypatch.setattr(absence, "time", clock)
    return clock
