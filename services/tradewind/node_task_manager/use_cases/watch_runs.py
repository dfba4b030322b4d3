"""Following ad-hoc runs: a watcher is notified when its run changes, and then reads the run itself."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from tradewind.node_task_manager.use_cases.shared_reads import SharedReads

State = TypeVar("State")

_RECHECK_S = 0.2
"""Scripts announce changes at most ten times a second, so a watcher reads again this long after a change."""
_POLL_S = 5.0


class Watcher:
    """A watcher of a run."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    def notify(self, *, over: bool) -> None:
        """Note that the run has changed, or is over."""
        self._changed.set()
        if over:
            self._over.set()

    def clear(self) -> None:
        """Forget earlier news."""
        self._changed.clear()
        self._over.clear()

    async def wait(self, *, changed: bool) -> None:
        """Return when it is worth looking again; `changed` says whether the last look showed something new."""
        event, pause = (self._over, _RECHECK_S) if changed else (self._changed, _POLL_S)
        try:
            async with asyncio.timeout(pause):
                await event.wait()
        except TimeoutError:
            return


class RunWatch:
    """The watchers of this process, by run."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}
        self._reads: SharedReads[Any] = SharedReads()

    def notify(self, run: str, *, over: bool = False) -> None:
        """Tell the watchers that a run has changed, or is over."""
        for watcher in self._watchers.get(run, ()):
            watcher.notify(over=over)

    def recheck(self) -> None:
        """Have all watchers look, since news may have been lost."""
        for run in self._watchers:
            self.notify(run, over=True)

    async def follow(
        self,
        run: str,
        user_id: str,
        read: Callable[[], Awaitable[State]],
        fingerprint: Callable[[State], object],
        ended: Callable[[State], bool],
    ) -> AsyncGenerator[State, None]:
        """Yield what `read` returns, then again whenever its `fingerprint` has changed, until it has `ended`.

        Watchers of a run with the same `user_id` share what they read at the same time. Raises what `read` raises.
        """
        watcher = Watcher()
        watchers = self._watchers.setdefault(run, set())
        watchers.add(watcher)
        shown: object = None
        try:
            while True:
                watcher.clear()
                state: State = await self._reads((run, user_id), read)
                seen = fingerprint(state)
                changed, shown = seen != shown, seen
                if changed:
                    yield state
                if ended(state):
                    return
                await watcher.wait(changed=changed)
        finally:
            watchers.discard(watcher)
            if not watchers and self._watchers.get(run) is watchers:
                del self._watchers[run]
