"""Random operations on stores, one of them in Redis, driven by Hypothesis in `tests/stores/*/test_same*.py`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.servers import RedisServer
from tradewind.server.clock import ManualClock

Store = TypeVar("Store")


class StoreMachine(RuleBasedStateMachine):
    """A machine whose rules run coroutines on a loop of its own, with an empty Redis and a clock."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.server = server
        self.clock = ManualClock()
        self.run(server.flush())

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Return the result of a coroutine."""

        async def waiting() -> Any:
            return await awaitable

        return self.runner.run(waiting())

    async def at_the_end(self) -> None:
        """Check what is left once no client is open."""

    def teardown(self) -> None:
        self.run(self.server.close_clients())
        self.run(self.at_the_end())
        self.runner.close()


class TwinStores(StoreMachine, Generic[Store]):
    """Two stores that must answer alike."""

    memory: Store
    redis: Store

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """Return the answer that both give."""
        expected, found = self.outcome(call, self.memory), self.outcome(call, self.redis)
        assert found == expected
        return found

    def outcome(self, call: Callable[[Store], Awaitable[Any]], store: Store) -> Any:
        """Return the answer of one store."""
        return self.run(call(store))
