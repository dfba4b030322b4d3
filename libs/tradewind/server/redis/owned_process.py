"""Becomes a program that ends with the process that started it: `owned_process.py <owner pid> <signal> <program> ...`.

A separate script, instead of code between fork and exec: forking a process in which gRPC has threads is not safe. Only
Linux can tie the two together; elsewhere the program outlives a killed owner until somebody stops it.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def owned(program: Sequence[str], end_with: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the command that becomes `program`, whose first word is a path, and gets a signal when this process dies.

    Start it from the main thread: on Linux it gets the signal when the thread that started it ends.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(end_with)), *program]


def main() -> None:
    owner, end_with, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, end_with)
        if os.getppid() != owner:
            sys.exit("the owning process has already exited")
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
