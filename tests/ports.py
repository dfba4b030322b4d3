"""Ports for processes that are told theirs before they listen."""

import itertools
import os
import socket

_FIRST, _SLICE, _SLICES = 20_000, 1_500, 8
"""Below the ports that a system gives to those who ask for any, so nobody gets one between our choice and its use."""

_taken = itertools.count(os.getpid())


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on, and that no other test of this run is told."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SLICES
    for _ in range(_SLICE):
        port = _FIRST + worker * _SLICE + next(_taken) % _SLICE
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")
