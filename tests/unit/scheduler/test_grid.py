"""The grid of planned times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.scheduler.domain.grid import next_planned


@pytest.mark.parametrize(
    ("planned", "interval", "now", "following"),
    [
        (0, 60_000, 0, 60_000),
        (0, 60_000, 3_000, 60_000),  # a cycle of 3 s does not shift the next one
        (0, 60_000, 59_999, 60_000),
        (0, 60_000, 60_000, 120_000),  # due this very moment is not after now
        (0, 60_000, 90_000, 120_000),
        (0, 7_000, 10_100, 14_000),
        (1_000, 1, 5_000, 5_001),
        (100_000, 60_000, 40_000, 160_000),  # fired early: still after the time it was planned for
        (1_700_000_000_123, 1_000, 1_700_000_000_123 + 10**12, 1_700_000_001_123 + 10**12),
    ],
)
def test_next_planned(planned: int, interval: int, now: int, following: int) -> None:
    assert next_planned(planned, interval, now) == following


@pytest.mark.parametrize("interval", [0, -1])
def test_without_an_interval_nothing_follows(interval: int) -> None:
    with pytest.raises(ValueError, match="no next planned time"):
        next_planned(0, interval, 0)


@given(st.integers(0, 2**45), st.integers(1, 2**40), st.integers(0, 2**45))
def test_it_is_the_first_time_of_the_grid_after_now(planned: int, interval: int, now: int) -> None:
    following = next_planned(planned, interval, now)
    assert (following - planned) % interval == 0
    assert following > max(planned, now)
    assert following - interval <= max(planned, now)
