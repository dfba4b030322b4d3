"""How much is computed in one turn of the event loop, counted in calls: no load of the machine changes these."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest


@dataclass
class LongestTurn:
    """The most calls, of Python and of C, that one callback of the loop has led to, and which callback that was."""

    calls: int = 0
    callback: str = ""


@contextmanager
def counted_turns() -> Iterator[LongestTurn]:
    """Count the turns of this thread's loop; what other threads compute does not count."""
    longest, calls = LongestTurn(), 0
    run = asyncio.Handle._run

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def counted(handle: Any) -> None:
        nonlocal calls
        calls = 0
        callback = repr(handle._callback)
        run(handle)
        if calls > longest.calls:
            longest.calls, longest.callback = calls, callback

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.Handle, "_run", counted)
        sys.setprofile(count)
        try:
            yield longest
        finally:
            sys.setprofile(None)
            # The turn that leaves this block is still under way.
            if calls > longest.calls:
                longest.calls, longest.callback = calls, "the last turn"
