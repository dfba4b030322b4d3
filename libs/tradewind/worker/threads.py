"""Threads for nodes; a stuck thread neither keeps the process from ending nor takes another node's place."""

import asyncio
import contextvars
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("tradewind.worker")

Call = Callable[[], Any]

STUCK_AFTER = 5.0
"""Seconds after which a thread that nobody waits for counts as stuck: a node that was told late may need this time."""


class _Job:
    __slots__ = ("begun", "call", "context", "ended", "future", "given_up")

    def __init__(self, call: Call, future: asyncio.Future[tuple[Any, BaseException | None]]) -> None:
        self.context = contextvars.copy_context()
        self.call = call
        self.future = future
        self.begun = self.ended = self.given_up = False


class ThreadPool:
    """Up to `capacity` daemon threads, started as needed, that make calls in the order of their submission.

    Unlike the threads of concurrent.futures, they are not waited for at exit: a node that does not check for its stop
    cannot be ended otherwise. A thread whose call nobody waits for is given up, and another may take its place. Results
    that are ready together are delivered to the loop together.
    """

    def __init__(
        self, capacity: int, *, stuck_limit: int = 0, too_many_stuck: Callable[[int], None] = lambda count: None
    ) -> None:
        """`too_many_stuck(count)` is called on the loop when `stuck_limit` threads, if not 0, are stuck."""
        self._capacity = capacity
        self._stuck_limit = stuck_limit
        self._too_many_stuck = too_many_stuck
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._lock = threading.Lock()
        self._unfinished = 0
        self._stuck: set[_Job] = set()
        self._results: deque[tuple[_Job, Any, BaseException | None]] = deque()
        self._delivering = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, call: Call) -> Any:
        """Return what `call` returns, or raise what it raises, in the context of the caller.

        On cancellation, a call that has not begun never does, and the thread of a call that has begun is given up.
        Raises RuntimeError when there is no thread and the system has no room for one.
        """
        loop = self._loop = asyncio.get_running_loop()
        job = _Job(call, loop.create_future())
        with self._lock:
            self._unfinished += 1
            needed = self._needs_thread()
        if needed and not self._start_thread():
            with self._lock:
                self._unfinished -= 1
            raise RuntimeError("the system cannot start another thread")
        self._jobs.put(job)
        try:
            result, error = await job.future
        except asyncio.CancelledError:
            self._give_up(job, loop)
            raise
        if error is not None:
            try:
                raise error
            finally:
                # Its traceback holds this frame, and so itself: that cycle would keep the arguments of the call.
                del error, job
        return result

    def close(self) -> None:
        """Let every thread end once it is done, without waiting."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _needs_thread(self) -> bool:
        needed = self._unfinished > self._started < self._capacity
        self._started += needed
        return needed

    def _start_thread(self) -> bool:
        """Start a thread if the system has room; return whether the pool has any thread."""
        try:
            threading.Thread(target=self._work, name=f"tradewind-node-{self._started}", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._started -= 1
                return self._started > 0
        return True

    def _give_up(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if job.ended:
                return
            job.given_up = True
            if not job.begun:
                return
            self._unfinished -= 1
            self._started -= 1
            needed = self._needs_thread()
        if needed:
            self._start_thread()
        loop.call_later(STUCK_AFTER, self._check_stuck, job)

    def _check_stuck(self, job: _Job) -> None:
        with self._lock:
            if job.ended:
                return
            self._stuck.add(job)
            count = len(self._stuck)
        logger.warning(
            "threads stuck although their nodes were told to stop: %s; other threads replace them%s",
            count,
            f", but at {self._stuck_limit} the worker leaves" if self._stuck_limit else "",
        )
        if count == self._stuck_limit:
            self._too_many_stuck(count)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.given_up:
                    self._unfinished -= 1
                    continue
                job.begun = True
            result, error = None, None
            try:
                result = job.context.run(job.call)
            except BaseException as raised:
                error = raised
            with self._lock:
                job.ended = True
                if job.given_up:
                    # Another thread has taken this thread's place.
                    self._stuck.discard(job)
                    return
                self._unfinished -= 1
                self._results.append((job, result, error))
                wake, self._delivering = not self._delivering, True
            del job, result, error
            if wake:
                self._wake()

    def _wake(self) -> None:
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop is closed: nobody waits for the result any more.
            return

    def _deliver(self) -> None:
        with self._lock:
            results, self._results = self._results, deque()
            self._delivering = False
        for job, result, error in results:
            if not job.future.done():
                job.future.set_result((result, error))
