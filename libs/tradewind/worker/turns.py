"""Turns of this process at variables that several nodes update, so that they are not in each other's way."""

import threading
from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future


class Turn(Future[bytes]):
    """A place in a queue; done when everybody before has ended."""


class Turns:
    """Queues by key. Any thread may use them, and nobody has to wait for a turn before going ahead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[Turn]] = {}

    def take(self, key: Hashable) -> Turn:
        """Return a turn, which must be ended by whoever took it."""
        turn = Turn()
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(turn)
            first = queue[0] is turn
        if first:
            turn.set_result(b"")
        return turn

    def end(self, key: Hashable, turn: Turn) -> None:
        """End a turn, also one that has not come."""
        with self._lock:
            queue = self._queues[key]
            was_first = queue[0] is turn
            queue.remove(turn)
            first = queue[0] if was_first and queue else None
            if not queue:
                del self._queues[key]
        # Whoever is first now, and has been cancelled meanwhile, ends that turn as well.
        if first is not None and first.set_running_or_notify_cancel():
            first.set_result(b"")
