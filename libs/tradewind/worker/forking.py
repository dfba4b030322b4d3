"""A process that a node forks is on its own: its signals must not reach the worker."""

import os
import signal
from collections.abc import Callable

_SIGNALS = {signal.SIGTERM, signal.SIGINT}


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
