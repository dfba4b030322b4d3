"""Threads for `asyncio.to_thread` that nobody waits for."""

import functools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class DaemonThreads(ThreadPoolExecutor):
    """An executor for `asyncio.to_thread`: up to `capacity` daemon threads, for which neither the loop nor the process
    waits."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._to_start = capacity
        self._idle = threading.Semaphore(0)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call `fn` in a thread. Belongs to the loop's thread."""
        future: Future[R] = Future()
        self._calls.put((future, functools.partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._to_start:
            threading.Thread(target=self._work, name="tradewind-to-thread", daemon=True).start()
            self._to_start -= 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: these threads are not waited for."""

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call
            self._idle.release()
