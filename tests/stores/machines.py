"""Random operations on stores, one of them in Redis, driven by Hypothesis in `tests/stores/*/test_*same_as_memory.py`.

`make histories` runs HISTORIES times as many, 20 by default.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.servers import RedisServer
from tradewind.server.clock import ManualClock

Store = TypeVar("Store")

HISTORIES = int(os.environ.get("HISTORIES", "1"))
"""How many times as many histories to run."""

OTHER_KINDS = 3
"""One history runs on each other kind of store for this many on the embedded one: all of them run the same scripts."""


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


async def together(*reads: Awaitable[Any]) -> list[Any]:
    """Return the answers to calls that change nothing: made at the same time, they share round trips."""
    return await asyncio.gather(*reads)


def run_histories(
    make: Callable[[RedisServer], StoreMachine], server: RedisServer, examples: int, *, steps: int = 40
) -> None:
    """Run so many random histories on the embedded store (times HISTORIES), and fewer on other kinds of store."""
    examples *= HISTORIES
    if server.kind != "embedded":
        examples = -(-examples // OTHER_KINDS)
    run_state_machine_as_test(
        lambda: make(server),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
