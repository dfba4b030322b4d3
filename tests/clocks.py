"""A machine whose clock disagrees with those of the others."""

import time
from types import SimpleNamespace

import pytest
from grpc.aio import _utils


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """Move this process's clock forward by `ahead_s` seconds, or back; other processes, such as a store, keep theirs.

    gRPC's clock is left alone: only Python's part of gRPC would notice, and calls have timeouts.
    """
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(_utils, "time", SimpleNamespace(time=seconds))
    monkeypatch.setattr(time, "time", lambda: seconds() + ahead_s)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + round(ahead_s * 1e9))
