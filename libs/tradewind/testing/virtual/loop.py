"""An event loop with a virtual clock: when nothing is left to do, it jumps to the next timer at once."""

import asyncio
import contextvars
import heapq
import itertools
import math
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, TypeVar

Result = TypeVar("Result")

LONGEST_LEAP_NS = 6 * 3600 * 10**9
"""The longest leap; leases that the engine renews by itself must last longer."""

_of_engine: contextvars.ContextVar[bool] = contextvars.ContextVar("of_engine", default=False)


class _Leaping(selectors.DefaultSelector):
    """Moves the loop's time forward instead of waiting."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # There is no timer: only another thread can cause something to happen.
            return super().select(None)
        if self.loop.called_from_outside:
            self.loop.called_from_outside = False
            return super().select(0)
        if timeout > 0:
            self.loop.leap(math.ceil(timeout * 1e9))
        return []


class _Task(asyncio.Task[Any]):
    """Hashed by number, not by address, so that a TaskGroup cancels its tasks, a set, in the same order every time."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, number: int, **options: Any) -> None:
        self._number = number  # Task() already needs the hash.
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at `start_ns`, nanoseconds since the epoch. Time passes only while everything waits for a timer.

    Work handed to a thread (`asyncio.to_thread`) runs at once, in the loop's own thread.
    """

    def __init__(self, start_ns: int) -> None:
        selector = _Leaping()
        selector.loop = self
        self.called_from_outside = False
        self.in_plain_code = False
        self.start_ns = start_ns
        self.now_ns = 0
        """Nanoseconds since the start."""
        self.engine = contextvars.copy_context()
        """The context of the engine itself; timers of any other context belong to the engine's users."""
        self.engine.run(_of_engine.set, True)
        self.next_deadline_ns: Callable[[], int | None] = lambda: 0
        """Returns when, in nanoseconds since the epoch, the engine next has anything to do; None for never."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self.thread = threading.get_ident()
        super().__init__(selector)
        tasks = itertools.count()
        self.set_task_factory(lambda loop, coro, **options: _Task(coro, loop=loop, number=next(tasks), **options))
        # A float that counts seconds over years is no more exact than this in its last digits.
        self._clock_resolution = 1e-6

    @property
    def epoch_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self.start_ns + self.now_ns

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self.epoch_ns // 1_000_000

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if not _of_engine.get():
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def leap(self, least_ns: int) -> None:
        """Move time to the next timer, `least_ns` ahead, or past all the engine's timers while it has nothing to do."""
        target_ns = self.now_ns + least_ns
        deadline_ns = self.next_deadline_ns()
        if deadline_ns is None or deadline_ns > self.start_ns + target_ns:
            furthest_ns = self.now_ns + LONGEST_LEAP_NS
            if deadline_ns is not None:
                furthest_ns = min(furthest_ns, deadline_ns - self.start_ns)
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if self._timers:
                furthest_ns = min(furthest_ns, math.ceil(self._timers[0][0] * 1e9))
            target_ns = max(target_ns, furthest_ns)
        self.now_ns = target_ns
        while self._timers and self._timers[0][0] * 1e9 <= target_ns:
            heapq.heappop(self._timers)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() == self.thread:
            return self.call_soon(callback, *args, context=context)
        self.called_from_outside = True
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_plain(self, func: Callable[[], Result]) -> Result:
        """Run plain code in the loop's own thread; it finds no running loop, as in a thread of its own."""
        self.in_plain_code, outer = True, self.in_plain_code
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return func()
        finally:
            asyncio._set_running_loop(running)
            self.in_plain_code = outer

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(self.run_plain(lambda: func(*args)))
        except Exception as error:
            future.set_exception(error)
        return future


def running_loop() -> VirtualLoop:
    """Return the virtual loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
