"""Natural batching: whatever arrives while one flush is in flight waits and goes with the next."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Turns many single submissions into few flushes, without timers and without latency when idle.

    `flush(items)` gets 1 to `max_items` items in the order of submission, those submitted `urgent` first, and returns
    as many results in the same order; if it raises, every waiter of that batch gets the exception. With `weigh`, a
    batch also ends before its items together weigh more than `max_weight` (one heavier item goes alone). Only one flush
    runs at a time. A caller that is cancelled before its item is taken withdraws it; after that, its result is dropped.

    Before it takes a batch that is not full, the batcher awaits `gate()`, which must not raise: where results would
    only wait for something else, larger batches are better. By then, the waiters of the previous batch have had a turn
    of the loop.
    """

    def __init__(
        self,
        flush: Callable[[list[Item]], Awaitable[Sequence[Result]]],
        max_items: int = 500,
        *,
        weigh: Callable[[Item], int] | None = None,
        max_weight: int = 2 * 1024 * 1024,
        gate: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        if max_items < 1:
            raise ValueError(f"max_items must be at least 1, is {max_items}")
        self._flush = flush
        self._max_items = max_items
        self._weigh = weigh
        self._max_weight = max_weight
        self._gate = gate
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._urgent = 0
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many items no flush has taken yet."""
        return len(self._waiting)

    @property
    def waiting_weight(self) -> int:
        """How much the items weigh together that no flush has taken yet; each weighs 1 without `weigh`."""
        return len(self._waiting) if self._weigh is None else sum(self._weigh(item) for item, _ in self._waiting)

    def submit(self, item: Item, *, urgent: bool = False) -> asyncio.Future[Result]:
        """Queue `item` and return a future for its result.

        Raises RuntimeError when the batcher is closed.
        """
        if self._closed:
            raise RuntimeError("this batcher is closed and accepts nothing more")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if urgent:
            self._waiting.insert(self._urgent, (item, future))
            self._urgent += 1
        else:
            self._waiting.append((item, future))
        if self._running is None:
            # The task starts in the loop's next round, so everything submitted in this round goes together. An empty
            # context keeps the trace of whoever came first out of everybody's flushes.
            self._running = loop.create_task(self._run(), context=Context())
        return future

    async def close(self) -> None:
        """Take nothing more and wait until everything submitted so far has its result."""
        self._closed = True
        if self._running is not None:
            await asyncio.shield(self._running)

    async def _run(self) -> None:
        first = True
        try:
            while self._waiting:
                if self._gate is not None and not self._full():
                    if not first:
                        await asyncio.sleep(0)
                    await self._gate()
                first = False
                items, futures = self._next_batch()
                if items:
                    await self._flush_batch(items, futures)
        except asyncio.CancelledError:
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._urgent = 0
            raise
        finally:
            self._running = None

    def _full(self) -> bool:
        return len(self._waiting) >= self._max_items or self.waiting_weight >= self._max_weight

    def _next_batch(self) -> tuple[list[Item], list[asyncio.Future[Result]]]:
        items: list[Item] = []
        futures: list[asyncio.Future[Result]] = []
        weight = 0
        while self._waiting and len(items) < self._max_items:
            item, future = self._waiting[0]
            if not future.done():
                if self._weigh is not None:
                    weight += self._weigh(item)
                    if items and weight > self._max_weight:
                        break
                items.append(item)
                futures.append(future)
            self._waiting.popleft()
            self._urgent = max(0, self._urgent - 1)
        return items, futures

    async def _flush_batch(self, items: list[Item], futures: list[asyncio.Future[Result]]) -> None:
        try:
            results = await self._flush(items)
            if len(results) != len(items):
                raise RuntimeError(f"the flush of {len(items)} items returned {len(results)} results")
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        except Exception as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        for future, result in zip(futures, results, strict=True):
            if not future.done():
                future.set_result(result)
