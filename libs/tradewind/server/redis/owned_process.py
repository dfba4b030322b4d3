"""Becomes another program that dies with the process that started it: `owned_process.py <owner pid> <program> ...`.

A separate script, instead of code between fork and exec: forking a process in which gRPC has threads is not safe. Only
Linux can tie the two together; elsewhere the program outlives a killed owner until somebody stops it.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def owned(program: Sequence[str]) -> list[str]:
    """Return the command that becomes `program`, whose first word is a path, and that dies with this process.

    Start it from the main thread: on Linux it dies with the thread that started it.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *program]


def main() -> None:
    owner, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:
            sys.exit("the owning process has already exited")
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
