"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import uvloop

from tradewind.client.calls import CLOSED
from tradewind.client.reports import reports
from tradewind.tls.channels import FORKED

Result = TypeVar("Result")

_END_S = 5.0


class BackgroundLoop:
    """Runs coroutines while their callers, in any other thread, wait."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._closing = False
        # Reentrant: the garbage collector may end an iteration while the lock is held.
        self._lock = threading.RLock()
        self._closing_tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tradewind-client", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop has ended or is ending; Python, when it exits, leaves no thread but its own running."""
        return self._closing or sys.is_finalizing() or not self._thread.is_alive()

    def wait(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and return its result; interrupting the wait, as by Ctrl-C, cancels it.

        Raises RuntimeError when the loop is closed, before or during the wait, as Python does when it exits, and in a
        process forked since it began.
        """
        # Handed over under the lock, a coroutine reaches the loop before the loop is ended.
        with self._lock:
            if self.closed:
                coroutine.close()
                raise RuntimeError(CLOSED if self._closing or sys.is_finalizing() else FORKED)
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._closing:
                raise RuntimeError(CLOSED) from None
            raise
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Yield the items of an asynchronous iterator, asking it for one at a time."""
        asking: list[asyncio.Task[Any]] = []
        try:
            while True:
                item = self.wait(_next(items, asking))
                if item is None:
                    return
                yield item[0]
        finally:
            if hasattr(items, "aclose") and not self.closed:
                closing = _close(items, asking)
                if threading.current_thread() is self._thread:
                    # The garbage collector ends the iteration in the loop's own thread, which must not wait.
                    self._closing_tasks.add(task := self._loop.create_task(closing))
                    task.add_done_callback(self._closing_tasks.discard)
                else:
                    self.wait(closing)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel what others wait for, await `last()`, then end the loop and its thread. Safe to repeat."""
        with self._lock:
            if self.closed:
                return
            self._closing = True
        asyncio.run_coroutine_threadsafe(self._end(last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        pending = asyncio.all_tasks() - {asyncio.current_task()} - reports()
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=_END_S)
        if last is not None:
            await last()
        await self._loop.shutdown_asyncgens()


async def _next(items: AsyncIterator[Result], asking: list[asyncio.Task[Any]]) -> tuple[Result] | None:
    """Return the next item, None after the last; `asking` then has the task that asked for it."""
    asking[:] = filter(None, [asyncio.current_task()])
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _close(items: Any, asking: list[asyncio.Task[Any]]) -> None:
    """Close an iterator after the task that asked it last: one that was interrupted still has to unwind."""
    for task in asking:
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await items.aclose()
