"""Durations in sentences."""

import pytest

from tradewind.server.durations import duration_text


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
