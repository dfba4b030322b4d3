"""Durations in sentences."""

import pytest

from tradewind.server.durations import duration_text, rounded_up


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (250, "250 ms"),
        (5000, "5 s"),
        (90_000, "90 s"),
        (300_000, "5 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_duration_uses_largest_unit_with_whole_value(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0121, "13 ms"),
        (1, "1000 ms"),
        (1.5, "2 s"),
        (60, "60 s"),
        (61, "2 min"),
        (3599.5, "60 min"),
        (43_199.9, "12 h"),
        (86_400, "24 h"),
        (100_000, "2 d"),
    ],
)
def test_rounded_duration_is_never_too_short(seconds: float, text: str) -> None:
    assert rounded_up(seconds) == text
