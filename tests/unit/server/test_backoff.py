"""Pauses between attempts."""

import pytest

from tradewind.server.backoff import Backoff


def test_pauses_double_up_to_maximum_with_half_of_each_random() -> None:
    backoff = Backoff(initial_s=0.1, max_s=0.5)
    longest = [0.1, 0.2, 0.4, 0.5, 0.5]

    for each in longest * 200:
        if each == longest[0]:
            backoff.reset()
        assert each / 2 <= backoff.next_s() <= each


def test_simultaneous_failures_retry_at_different_times() -> None:
    assert len({Backoff().next_s() for _ in range(10)}) == 10


async def test_pause_sleeps_for_the_backoff_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    backoff = Backoff(initial_s=1.0)
    await backoff.pause()
    await backoff.pause()

    first, second = slept
    assert 0.5 <= first <= 1.0 <= second <= 2.0
