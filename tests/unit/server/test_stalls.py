"""Noticing that a process was suspended."""

from types import SimpleNamespace

import pytest

from tradewind.server import stalls
from tradewind.server.stalls import StallDetector


def test_stall_is_noticed_by_first_check_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stalls, "time", SimpleNamespace(monotonic=lambda: now))
    watched = StallDetector()
    seen = []
    for at in (100.0, 101.0, 102.9, 105.0, 106.0, 166.0, 167.0):
        now = at
        seen.append(watched.running_since_s())

    assert seen == [100.0, 100.0, 100.0, 105.0, 105.0, 166.0, 166.0]


def test_process_has_just_gone_on_for_5_s_after_stall_and_not_after_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stalls, "time", SimpleNamespace(monotonic=lambda: now))
    watched = StallDetector()
    seen = []
    for at in (100.0, 101.0, 190.0, 192.0, 193.9, 195.0, 196.0):
        now = at
        seen.append(watched.just_went_on())

    assert seen == [False, False, True, True, True, False, False]


async def test_run_checks_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    now, beats = 100.0, iter(range(5))
    monkeypatch.setattr(stalls, "time", SimpleNamespace(monotonic=lambda: now))
    watched = StallDetector()

    async def beat(every_s: float) -> None:
        nonlocal now
        next(beats)
        now += every_s

    monkeypatch.setattr(stalls, "beat", beat)
    with pytest.raises(RuntimeError):
        await watched.run()

    assert (now, watched.running_since_s()) == (105.0, 100.0)
