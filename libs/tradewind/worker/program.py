"""A worker as a program: the loop that it serves on, and the signals that end it."""

import asyncio
import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any
from weakref import WeakSet

import uvloop

from tradewind.worker.daemon_threads import DaemonThreads
from tradewind.worker.errors import WorkerError
from tradewind.worker.forking import end_if_forked, fork_count, reset_in_forks
from tradewind.worker.running import run_to_end

_importing: ContextVar[bool] = ContextVar("importing", default=False)
_threads_before: list[set[threading.Thread]] = []
"""The threads that were there when each import that is under way began."""
_threads_of_imports: WeakSet[threading.Thread] = WeakSet()
"""Threads that began during imports that are over."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_handlers: list[tuple[signal.Signals, Any]] = []
"""The handlers of these signals and SIGALRM before this process's worker replaced them; empty while no worker runs."""

_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""The loop of this process's worker."""

LOOP_PATIENCE = 1.0
"""Seconds within which the loop has to hear of a second signal, or the process ends at once."""
LEFTOVER_PATIENCE = 1.0
"""Seconds that what nodes have left on the loop has to end once the worker has left; it is not waited for longer."""


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import modules for what they declare, within the block: they must not start a worker, nor threads that do."""
    before = set(threading.enumerate())
    _threads_before.append(before)
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)
        _threads_of_imports.update(set(threading.enumerate()) - before)
        _threads_before.remove(before)


def is_importing() -> bool:
    """Return whether the caller was started by an import that `importing` is about."""
    thread = threading.current_thread()
    return _importing.get() or thread in _threads_of_imports or any(thread not in before for before in _threads_before)


def run_program(serve: Callable[[], Coroutine[Any, Any, None]], leave: Callable[[], bool], threads: int) -> None:
    """Run `serve()` on a loop of its own, in which `asyncio.to_thread` has `threads` threads.

    SIGTERM and SIGINT call `leave()`; if that returns False, because the worker is leaving already, the program ends at
    once with SystemExit: 128 plus the signal's number. If a node holds the loop, the process exits with that number a
    second after the second signal. Raises WorkerError outside of the main thread, and where a loop is already running.
    """
    if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is not None:
        raise WorkerError(
            "run() handles signals and starts an event loop, so it must be called in the main thread, outside of any "
            "loop; elsewhere, await serve() and end it with stop(), or use async with"
        )
    _handlers[:] = [(number, signal.getsignal(number)) for number in (*_SIGNALS, signal.SIGALRM)]
    _restore_handlers_in_forks()
    # Not an asyncio.Runner, which would wait for the tasks of nodes however long they take to end.
    loop = uvloop.new_event_loop()
    _loops.add(loop)
    try:
        loop.set_default_executor(DaemonThreads(threads))
        try:
            run_to_end(loop, _until_signalled(serve, leave))
        finally:
            run_to_end(loop, _end_leftovers(loop))
    finally:
        loop.close()
        _restore_handlers()


async def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that nodes have left behind and close their async generators, as far as they end soon."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    left.add(loop.create_task(loop.shutdown_asyncgens()))
    await asyncio.wait(left, timeout=LEFTOVER_PATIENCE)


@functools.cache
def _restore_handlers_in_forks() -> None:
    reset_in_forks(_handle_fork)


def _handle_fork() -> None:
    """In a process that a node forked, as multiprocessing may: restore signal handling, and end where the loop goes on.

    Otherwise it would report its signals to the worker's loop, and survive them.
    """
    if _handlers:
        signal.set_wakeup_fd(-1)
        _restore_handlers()
        for loop in _loops:
            loop.call_soon(end_if_forked, fork_count() - 1)


def _restore_handlers() -> None:
    for number, handler in _handlers:
        signal.signal(number, handler)
    _handlers.clear()


async def _until_signalled(serve: Callable[[], Coroutine[Any, Any, None]], leave: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    assert serving is not None
    received: list[int] = []
    killed: list[int] = []

    # Not a handler of the loop, which would wait for a node that holds the loop. A timer rather than a thread, because
    # the signal may have come while a thread was being started.
    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
            signal.setitimer(signal.ITIMER_REAL, LOOP_PATIENCE)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the worker has left
            loop.call_soon_threadsafe(handle, number)

    def handle(number: int) -> None:
        if len(received) > 1:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if not leave():
            killed.append(number)
            serving.cancel()

    for number in _SIGNALS:
        signal.signal(number, receive)
    try:
        await serve()
    except asyncio.CancelledError:
        if not killed:
            raise
        raise SystemExit(128 + killed[0]) from None
