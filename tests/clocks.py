"""The clock of a machine that does not agree with those of the others."""

import time
from types import SimpleNamespace

import pytest
from grpc.aio import _utils


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """Put the clock of this process forward by so many seconds, or back; others, such as a store, keep theirs.

    That of gRPC is left as it is: only Python's part of it would be put forward, and calls have timeouts.
    """
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(_utils, "time", SimpleNamespace(time=seconds))
    monkeypatch.setattr(time, "time", lambda: seconds() + ahead_s)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + round(ahead_s * 1e9))
