"""Ports for processes that are given theirs before they listen."""

import itertools
import os
import socket

_FIRST, _SLICE, _SLICES = 20_000, 1_500, 8
"""These are below the ports that a system hands out by itself, so nobody gets one between our choice and its use."""

_offsets = itertools.count(os.getpid())
_reservations: list[socket.socket] = []
"""A datagram socket on each port given: until this process ends, other runs on this machine choose other ports."""


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on and that no other test on this machine is given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SLICES
    for _ in range(_SLICE):
        port = _FIRST + worker * _SLICE + next(_offsets) % _SLICE
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as listener:
            try:
                reservation.bind(("127.0.0.1", port))
                listener.bind(("127.0.0.1", port))
            except OSError:
                reservation.close()
                continue
        _reservations.append(reservation)
        return port
    raise AssertionError("no free port")
