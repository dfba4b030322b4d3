"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


class BackgroundLoop:
    """Runs coroutines while their callers, in any other thread, wait."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tradewind-client", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it runs no more."""
        return not self._thread.is_alive()

    def wait(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and return what it returns; an interrupted wait, as by Ctrl-C, cancels it."""
        if self.closed:
            coroutine.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Yield what an asynchronous iterator yields, asking it for one item at a time."""
        try:
            while True:
                item = self.wait(_next(items))
                if item is None:
                    return
                yield item[0]
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and not self.closed:
                self.wait(close())

    def close(self) -> None:
        """End the loop and its thread. Safe to repeat."""
        if not self.closed:
            self.wait(self._loop.shutdown_asyncgens())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _next(items: AsyncIterator[Result]) -> tuple[Result] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None
