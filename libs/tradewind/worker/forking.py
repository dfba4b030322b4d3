"""A process that a node forks is on its own: its signals do not reach the worker, and it never acts as one."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_forks = 0


def fork_count() -> int:
    """Return how many forks lie between this process and the one that imported this."""
    return _forks


def end_if_forked(since: int) -> None:
    """End this process, and say so on stderr, if it was forked after `fork_count()` was `since`.

    Call it where the code of a node is begun or left, also by an exception, and where the worker reports: such a
    process would do so a second time, over connections of the worker. The exit code is that of a SystemExit, else 1.
    """
    if _forks == since:
        return
    error, code = sys.exception(), 1
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        code = error.code or 0
    else:
        with suppress(Exception):
            if error is not None and not isinstance(error, StopIteration):  # a coroutine returned
                traceback.print_exception(error)
            print(
                f"process {os.getpid()}, which a node forked, has left the code of the node and ends: only the worker "
                "goes on there. Let forked processes end themselves, with sys.exit() or os._exit()",
                file=sys.stderr,
            )
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _count_fork() -> None:
    global _forks
    _forks += 1


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
