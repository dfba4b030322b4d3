"""A shard's store in memory that fails, hangs or loses its answers on demand."""

import asyncio
from collections.abc import Callable
from typing import Any

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.stores.memory import MemoryShard
from tradewind.server.clock import ManualClock


class FaultyStore:
    """All ports of a shard. Faults are set by the name of a method, and last until they are removed."""

    def __init__(self, clock: ManualClock) -> None:
        self._store = MemoryShard(Limits(), clock)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        """Every call that has begun, in order, with its arguments."""
        self.refused: dict[str, Callable[..., bool]] = {}
        """For arguments for which this returns true, calls fail and change nothing."""
        self.lost: set[str] = set()
        """Calls take effect, but fail."""
        self.held_up: dict[str, asyncio.Event] = {}
        """Calls reach the store once the event is set."""
        self.unanswered: dict[str, asyncio.Event] = {}
        """Calls take effect, but are answered only once the event is set."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, args))
            if name in self.held_up:
                await self.held_up[name].wait()
            if name in self.refused and self.refused[name](*args):
                raise ConnectionError(f"{name} is refused")
            answer = await method(*args, **options)
            if name in self.unanswered:
                await self.unanswered[name].wait()
            if name in self.lost:
                raise ConnectionError(f"the answer to {name} is lost")
            return answer

        return call

    def count(self, name: str) -> int:
        """Return how often a method was called."""
        return sum(called == name for called, _ in self.calls)


def always(*_args: object) -> bool:
    """For `refused`: true for any arguments."""
    return True
