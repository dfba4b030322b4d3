"""What a node forks is a process of its own, whose signals are none of the worker's."""

import os
import signal
from collections.abc import Callable

_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def once_forked(reset: Callable[[], None]) -> None:
    """Have `reset()` called in each process that this one forks from now on, before it gets a SIGTERM or SIGINT."""

    def begin() -> None:
        reset()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS),
        after_in_child=begin,
    )
