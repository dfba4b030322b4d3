"""Following capped streams: each watcher reads from its position on, when notified and every few seconds anyway."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tradewind.node_task_manager.ports.reading import STREAM_START, Stretch
from tradewind.node_task_manager.use_cases.shared_reads import SharedReads

Entry = TypeVar("Entry")

PAGE = 100
"""The most entries that a watcher reads at a time, and so holds."""
_POLL_S = 5.0
_LOOKS_A_SECOND = 100
"""Watchers without news look so many times a second in all: 2000 would otherwise take half a processor for nothing."""

Read = Callable[[str, int], Awaitable[Stretch[Entry]]]
"""Returns what follows a position, up to a number of entries."""


class StreamWatch:
    """The watchers of this process, by the stream they follow. All are notified over one connection."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._count = 0
        self._reads: SharedReads[Stretch[Any]] = SharedReads()

    def notify(self, name: str) -> None:
        """Tell the watchers of a stream that there is something new to read."""
        for news in self._watchers.get(name, ()):
            news.set()

    def recheck(self) -> None:
        """Have all watchers look, since news may have been lost."""
        for name in self._watchers:
            self.notify(name)

    @property
    def followed(self) -> int:
        """How many streams are followed."""
        return len(self._watchers)

    @property
    def poll_s(self) -> float:
        """How long a watcher waits for news, about, before it looks anyway."""
        return max(_POLL_S, self._count / _LOOKS_A_SECOND)

    async def follow(
        self, name: str, after: str, read: Read[Entry], position: Callable[[Entry], str]
    ) -> AsyncGenerator[Stretch[Entry], None]:
        """Yield what follows a position, without end; a regular look that finds nothing yields an empty stretch.

        A watcher that is slow to take entries reads no further meanwhile. Raises what `read` raises.
        """
        news = asyncio.Event()
        watchers = self._watchers.setdefault(name, set())
        watchers.add(news)
        self._count += 1
        try:
            while True:
                news.clear()
                stretch: Stretch[Entry] = await self._reads((name, after), partial(read, after, PAGE))
                if stretch.entries or stretch.gap:
                    after = position(stretch.entries[-1]) if stretch.entries else STREAM_START
                yield stretch
                if len(stretch.entries) < PAGE:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.poll_s * random.uniform(0.8, 1.2)):
                            await news.wait()
        finally:
            self._count -= 1
            watchers.discard(news)
            if not watchers and self._watchers.get(name) is watchers:
                del self._watchers[name]
