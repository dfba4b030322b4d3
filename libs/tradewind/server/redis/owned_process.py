"""Becomes another program that dies with the process that started it: `owned_process.py <owner pid> <program> ...`.

Run as a script of its own rather than between fork and exec, because forking a process in which gRPC has threads is
not safe. Only Linux can tie the two together; elsewhere the program outlives a killed owner until somebody stops it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    owner, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:
            sys.exit("the owner has gone already")
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
