"""Processes that nodes fork: their signals do not reach the worker, and they end where they leave the node."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_generation = 0


def fork_generation() -> int:
    """Return how many forks lie between this process and the one that imported this."""
    return _generation


def end_forked(since: int) -> None:
    """End the process, with the exit code that Python gives it, if it was forked after `fork_generation()` was `since`.

    Call it where the code of a node is left: what follows would report a second outcome, and use connections that
    belong to the worker.
    """
    if _generation == since:
        return
    error = sys.exception()
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        code = error.code or 0
    elif error is None or isinstance(error, StopIteration):  # a coroutine returned
        code = 0
    else:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _count_fork() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count_fork)


def reset_in_forks(reset: Callable[[], None]) -> None:
    """Call `reset()` in each process that this one forks from now on, before that gets a SIGTERM or SIGINT."""

    def after_fork() -> None:
        reset()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS),
        after_in_child=after_fork,
    )
