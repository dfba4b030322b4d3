"""Says in the worker's output that a node holds the event loop, while it does: it may never give it back."""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

from tradewind.worker import running

logger = logging.getLogger("tradewind.worker")

_MAX_FRAMES = 20


class LoopWatch:
    """A thread that sees whether the loop turns: every 5 s while nodes run, and never while none does."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """Watch the loop of the caller. `busy` returns whether nodes run; it is called in the thread."""
        self._busy = busy
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._wanted = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="tradewind-loop-watch", daemon=True).start()

    def node_begins(self) -> None:
        """Watch, from now on, until no node runs."""
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self) -> None:
        """Let the thread end."""
        self._closed.set()
        self._wanted.set()

    def _watch(self) -> None:
        while self._wanted.wait() and not self._closed.is_set():
            self._wanted.clear()
            turned = threading.Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop is closed
                return
            # In two halves: the time may have passed because the whole process was stopped, and then goes on.
            if not any(turned.wait(running.LONG_TURN_S / 2) for _ in range(2)) and not self._closed.is_set():
                self._report()
                turned.wait()
            if self._busy():
                self._wanted.set()
            self._closed.wait(running.LONG_TURN_S)

    def _report(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        node_task_id, frames = _innermost_node(frame)
        logger.warning(
            "%s has held the worker's event loop for more than %g s without awaiting, so no other async node runs and "
            "no lease is renewed; it is here:\n%s",
            node_task_id or "a task",
            running.LONG_TURN_S,
            "".join(traceback.format_stack(frame, frames)).rstrip(),
        )


def _innermost_node(frame: FrameType) -> tuple[str, int]:
    """Return the node task whose code runs in `frame`, "" if it is a task of the loop, and how many frames it has."""
    caller: FrameType | None = frame
    for count in range(_MAX_FRAMES):
        if caller is None:
            break
        if caller.f_code is running.stoppable.__code__:
            return caller.f_locals["attempt"].assignment.node_task_id, count
        caller = caller.f_back
    return "", _MAX_FRAMES
