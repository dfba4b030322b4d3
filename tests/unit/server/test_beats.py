"""Loops that check periodically do so at common beats, and never less often than their period."""

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from tradewind.server.beats import beat, beat_after, next_beat

TIMES = st.floats(0, 1e8)
PERIODS = st.sampled_from([0.05, 0.1, 1.0, 2.5, 5.0, 15.0, 3600.0, 5_000_000.0])


@given(TIMES, PERIODS)
def test_next_beat_is_a_multiple_of_the_period_within_about_one_period(now: float, every: float) -> None:
    then = beat_after(now, every)
    assert abs(then / every - round(then / every)) < 1e-6
    assert 0 < then - now <= 1.0101 * every


@given(st.integers(0, 1_000_000), PERIODS)
def test_waking_slightly_before_a_beat_does_not_repeat_it(number: int, every: float) -> None:
    assert round(beat_after((number + 1 - 0.005) * every, every) / every) == number + 2
    assert round(beat_after(number * every, every) / every) == number + 1


def test_beats_of_longer_periods_coincide_with_those_of_shorter_ones() -> None:
    assert beat_after(101.3, 5.0) == beat_after(102.6, 2.5) == beat_after(104.2, 1.0) == 105.0


async def test_event_loop_uses_the_monotonic_clock_that_processes_share() -> None:
    assert abs(asyncio.get_running_loop().time() - time.monotonic()) < 10


async def test_waiters_for_the_same_beat_do_not_wake_before_it() -> None:
    loop = asyncio.get_running_loop()
    due = next_beat(0.2)
    await asyncio.gather(beat(0.2), beat(0.2))
    # A timer of an event loop may fire slightly early, by the resolution of its clock.
    assert loop.time() > due - 0.01
