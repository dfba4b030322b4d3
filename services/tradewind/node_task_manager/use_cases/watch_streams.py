"""Following capped streams: each watcher reads on from where it is, told of news or now and then untold."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tradewind.node_task_manager.ports.reading import Stretch
from tradewind.node_task_manager.use_cases.shared_reads import SharedReads

Entry = TypeVar("Entry")

PAGE = 100
"""How many entries a watcher reads, and so holds, at most."""
_LOOK_S = 5.0

Read = Callable[[str, int], Awaitable[Stretch[Entry]]]
"""Returns what follows a position, so many entries at most."""


class StreamWatch:
    """The watchers of this process, by what they follow. All are told over the one connection that hears of news."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._reads: SharedReads[Stretch[Any]] = SharedReads()

    def tell(self, name: str) -> None:
        """There is something new to read."""
        for news in self._watchers.get(name, ()):
            news.set()

    def look(self) -> None:
        """News may have been lost."""
        for name in self._watchers:
            self.tell(name)

    @property
    def followed(self) -> int:
        """How many streams are followed."""
        return len(self._watchers)

    async def follow(
        self, name: str, after: str, read: Read[Entry], position: Callable[[Entry], str]
    ) -> AsyncGenerator[Stretch[Entry], None]:
        """Yield what follows a position, without end; an empty stretch where a look of its own accord found nothing.

        A watcher that is slow to take what it is given reads no further meanwhile. Raises what `read` raises.
        """
        news = asyncio.Event()
        watchers = self._watchers.setdefault(name, set())
        watchers.add(news)
        try:
            while True:
                news.clear()
                stretch: Stretch[Entry] = await self._reads((name, after), partial(read, after, PAGE))
                if stretch.entries or stretch.gap:
                    after = position(stretch.entries[-1]) if stretch.entries else "0-0"
                yield stretch
                if len(stretch.entries) < PAGE:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_S * random.uniform(0.8, 1.2)):
                            await news.wait()
        finally:
            watchers.discard(news)
            if not watchers and self._watchers.get(name) is watchers:
                del self._watchers[name]
