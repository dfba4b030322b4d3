"""Clocks: the system's, the store's, and one that a test moves."""

import time
from collections.abc import Callable

import pytest

from tradewind.server.clock import Clock, ManualClock, ScriptTime, SystemClock


def test_system_clock_returns_milliseconds() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000


def test_production_passes_zero_to_scripts() -> None:
    clock: Callable[[], int] = ScriptTime()
    assert clock() == 0


def test_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1_000)
    assert (clock.now_ms(), clock()) == (1_000, 1_000)
    assert clock.advance(250) == 1_250
    assert clock() == 1_250


def test_manual_clock_rejects_zero_and_never_goes_back() -> None:
    with pytest.raises(ValueError, match="the store's own time"):
        ManualClock(0)
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)
