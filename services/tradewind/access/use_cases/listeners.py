"""Those in this process who listen for changes of users."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tradewind.access.ports import Changes
from tradewind.server.access.authority import Changed


class Listeners:
    """All listeners for changes in this process, over one subscription."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._callbacks: set[Changed] = set()
        self._unsubscribe: Callable[[], None] | None = None
        self._open = asyncio.Event()

    async def start(self) -> None:
        """Subscribe; waits for as long as the store is away."""
        self._unsubscribe = await self._changes.subscribe(self._notify, lambda: self._notify(None))
        self._open.set()
        self._notify(None)

    def stop(self) -> None:
        """Unsubscribe."""
        if self._unsubscribe is not None:
            self._unsubscribe()

    @contextmanager
    def listening(self, on_change: Changed) -> Iterator[None]:
        """Inside, call `on_change` for each change, and with None once no more can be missed."""
        self._callbacks.add(on_change)
        try:
            if self._open.is_set():
                on_change(None)
            yield
        finally:
            self._callbacks.discard(on_change)

    def _notify(self, user_id: str | None) -> None:
        for on_change in list(self._callbacks):
            on_change(user_id)
