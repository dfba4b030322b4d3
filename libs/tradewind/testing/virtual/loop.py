"""An event loop whose time is not the machine's: when nothing is left to do, it is at once the next timer's turn."""

import asyncio
import math
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Leaping(selectors.DefaultSelector):
    """Moves the loop's time forward in place of waiting."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # No timer at all: only another thread can bring something.
            return super().select(None)
        if self.loop.called_from_outside:
            self.loop.called_from_outside = False
            return super().select(0)
        if timeout > 0:
            self.loop.now_ns += math.ceil(timeout * 1e9)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at `start_ns`, nanoseconds since the epoch. Time passes only while everything waits for a timer.

    What is handed to a thread (`asyncio.to_thread`) is run at once, in the loop's own thread.
    """

    def __init__(self, start_ns: int) -> None:
        selector = _Leaping()
        selector.loop = self
        self.called_from_outside = False
        self.start_ns = start_ns
        self.now_ns = 0
        """Nanoseconds since the start."""
        self._own_thread = threading.get_ident()
        super().__init__(selector)
        # Of a float that counts the seconds of years, the last digits are no more exact than this.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() == self._own_thread:
            return self.call_soon(callback, *args, context=context)
        self.called_from_outside = True
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future
