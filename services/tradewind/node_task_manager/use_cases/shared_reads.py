"""Reading once what many callers want at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from tradewind.server.batching import Batcher

Value = TypeVar("Value")

_MOST = 1000


class SharedReads(Generic[Value]):
    """Reads asked for while others are under way go together once those are done; reads with equal keys become one.

    So a caller never gets a value that was read before it asked.
    """

    def __init__(self) -> None:
        self._batcher: Batcher[tuple[Hashable, Callable[[], Awaitable[Value]]], Value | BaseException] = Batcher(
            self._read, _MOST
        )

    async def __call__(self, key: Hashable, read: Callable[[], Awaitable[Value]]) -> Value:
        """Return what `read` returns, which is the same for all callers with this key; raises what it raises."""
        outcome = await self._batcher.submit((key, read))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _read(
        self, wanted: Sequence[tuple[Hashable, Callable[[], Awaitable[Value]]]]
    ) -> list[Value | BaseException]:
        reads = dict(wanted)
        outcomes = await asyncio.gather(*(read() for read in reads.values()), return_exceptions=True)
        by_key = dict(zip(reads, outcomes, strict=True))
        return [by_key[key] for key, _ in wanted]
