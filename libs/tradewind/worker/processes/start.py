"""Starts a process for nodes: `start.py <worker's pid> <descriptor>`. Run as a script, by its path.

It ties itself to the worker before anything else, then takes over the worker's module path: only that path is sure to
find tradewind and the nodes' modules as the worker found them.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    worker, descriptor = int(sys.argv[1]), int(sys.argv[2])
    # The worker handles Ctrl-C, and the SIGTERM of whoever stops the whole group of processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != worker:
            sys.exit("the worker has already gone")
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    greeting = json.loads(_received(connection, *struct.unpack(">I", _received(connection, 4))))
    sys.path[:] = greeting["path"]
    sys.argv = [sys.argv[0]]
    from tradewind.worker.processes.serving import NodeServer

    NodeServer(connection).serve(log_level=greeting["log_level"])


def _received(connection: socket.socket, length: int) -> bytes:
    received = connection.recv(length, socket.MSG_WAITALL)
    if len(received) < length:
        sys.exit("the worker has already gone")
    return received


if __name__ == "__main__":
    main()
