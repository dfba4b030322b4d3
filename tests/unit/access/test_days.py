"""Days of users in their own time zones, including days on which clocks change."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.access.domain.day import day_of, is_date

HOUR = 3_600_000
ZONES = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "America/St_Johns", "Asia/Kathmandu"]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("zone", "now", "date", "ends"),
    [
        ("UTC", "2026-11-22T23:59:59.999+00:00", "2026-11-22", "2026-11-23T00:00+00:00"),
        ("UTC", "2026-11-23T00:00:00+00:00", "2026-11-23", "2026-11-24T00:00+00:00"),
        ("Asia/Tokyo", "2026-11-22T15:00:00+00:00", "2026-11-23", "2026-11-23T15:00+00:00"),
        # Days of 23 and of 25 hours.
        ("Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29", "2026-03-30T00:00+02:00"),
        ("Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25", "2026-10-26T00:00+01:00"),
        # Midnight does not exist: the day begins at one.
        ("America/Sao_Paulo", "2018-11-03T12:00:00-03:00", "2018-11-03", "2018-11-04T01:00-02:00"),
        # 0:00 to 1:00 comes twice within the day, which begins once.
        ("America/Havana", "2025-11-02T00:30:00-05:00", "2025-11-02", "2025-11-03T00:00-05:00"),
        # At one minute past midnight clocks go back into the previous day.
        ("America/St_Johns", "2010-11-06T23:30:00-02:30", "2010-11-06", "2010-11-07T00:00-02:30"),
        ("America/St_Johns", "2010-11-06T23:30:00-03:30", "2010-11-06", "2010-11-07T00:00-03:30"),
        # A whole day does not exist.
        ("Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-29", "2011-12-31T00:00+14:00"),
    ],
)
def test_day_and_its_end_follow_the_time_zone(zone: str, now: str, date: str, ends: str) -> None:
    day = day_of(zone, ms(now))
    assert (day.date, day.ends_at, day.left_ms) == (date, ms(ends), ms(ends) - ms(now))


@given(st.sampled_from(ZONES), st.integers(ms("2008-01-01T00:00+00:00"), ms("2030-01-01T00:00+00:00")))
def test_day_has_one_date_until_it_ends(zone: str, now: int) -> None:
    day = day_of(zone, now)
    assert 0 < day.left_ms <= 25 * HOUR
    assert datetime.fromtimestamp(now / 1000, ZoneInfo(zone)).date().isoformat() == day.date
    assert day_of(zone, day.ends_at).date > day.date


def test_invalid_dates_and_time_zones_are_rejected() -> None:
    assert is_date("2026-03-29")
    assert not any(map(is_date, ("", "today", "20260329", "2026-02-30", "2026-03-29T00:00")))
    with pytest.raises(ValueError, match="IANA"):
        day_of("Mars/Olympus", 0)
