"""Grids of planned times."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.server.schedules.grids import LAST_MS, MAX_COUNT, CronGrid, Grid, IntervalGrid, TimesGrid

BERLIN = "Europe/Berlin"
HOUR = 3_600_000


def at(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def following(grid: Grid, start_ms: int, count: int) -> list[int]:
    planned: list[int] = []
    for _ in range(count):
        moment = grid.after(planned[-1] if planned else start_ms)
        assert moment is not None
        planned.append(moment)
    return planned


def local(times: Sequence[int], zone: str) -> list[str]:
    return [datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).isoformat(timespec="minutes") for time in times]


def test_interval_has_exact_multiples_whenever_it_is_asked() -> None:
    grid = IntervalGrid(250, 1_000)
    assert following(grid, 0, 3) == [1000, 1250, 1500]
    assert grid.after(1_249) == 1250
    assert grid.after(1_250) == 1500
    assert (grid.up_to(999), grid.up_to(1_000), grid.up_to(1_499)) == (None, 1000, 1250)
    assert IntervalGrid(HOUR, 0).after(LAST_MS) is None
    with pytest.raises(ValueError, match="at least 1 ms"):
        IntervalGrid(0, 0)


def test_time_of_day_that_clocks_skip_is_planned_at_the_change() -> None:
    grid = CronGrid("30 2 * * *", BERLIN)
    assert local(following(grid, at("2026-03-27T12:00", BERLIN), 3), BERLIN) == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_time_of_day_that_occurs_twice_is_planned_the_first_time() -> None:
    grid = CronGrid("30 2 * * *", BERLIN)
    assert local(following(grid, at("2026-10-24T12:00", BERLIN), 2), BERLIN) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_clock_change_rules_hold_for_cron_with_seconds() -> None:
    grid = CronGrid("30 30 2 * * *", BERLIN)
    assert local(following(grid, at("2026-03-28T12:00", BERLIN), 2), BERLIN) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert local(following(grid, at("2026-10-24T12:00", BERLIN), 2), BERLIN) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_skipped_time_of_day_is_not_planned_before_the_change() -> None:
    change = at("2026-03-29T01:00:00+00:00")
    grid = CronGrid("15,30 2 * * *", BERLIN)
    assert grid.up_to(change - 1) == at("2026-03-28T02:30", BERLIN)
    assert grid.up_to(change) == change
    assert grid.between(change - HOUR, change + HOUR) == 1


def test_clock_changes_of_unusual_length_or_time_are_handled() -> None:
    """By half an hour on Lord Howe; in St. John's, from a minute past midnight."""
    for zone, moment, planned in (
        ("Australia/Lord_Howe", "2024-04-07T00:30", ["2024-04-07T02:00+10:30", "2024-04-07T04:00+10:30"]),
        ("America/St_Johns", "2006-10-28T23:00", ["2006-10-29T00:00-02:30", "2006-10-29T00:00-03:30"]),
    ):
        grid = CronGrid("0 */2 * * *", zone)
        found = following(grid, at(moment, zone), 2)
        assert local(found, zone) == planned
        assert [grid.up_to(each) for each in found] == found


def test_cron_ends_with_the_calendar_in_every_zone() -> None:
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        grid = CronGrid("*/5 * * * *", zone)
        assert grid.after(LAST_MS) is None
        last = grid.up_to(LAST_MS)
        assert last is not None
        assert grid.between(last - HOUR, LAST_MS) == 12


def test_half_hourly_cron_keeps_its_interval_through_both_changes() -> None:
    grid = CronGrid("*/30 * * * *", BERLIN)
    for day in ("2026-03-29T00:15", "2026-10-25T00:15"):
        planned = following(grid, at(day, BERLIN), 10)
        assert {later - earlier for earlier, later in pairwise(planned)} == {HOUR // 2}


def test_times_planned_in_the_first_pass_of_a_repeated_hour_do_not_recur() -> None:
    """Times that were planned in it the first time have passed, even those at a later time of day than now."""
    again = at("2024-10-27T01:05:00+00:00")
    assert CronGrid("10 2 * * *", BERLIN).after(again) == at("2024-10-28T02:10:00", BERLIN)
    grid = CronGrid("10 1,2,3 * * *", BERLIN)
    assert grid.after(again) == at("2024-10-27T03:10:00", BERLIN)
    assert grid.between(again, at("2024-10-27T04:00:00", BERLIN)) == 1
    assert grid.up_to(again) == at("2024-10-27T00:10:00+00:00")


def test_cron_supports_names_lists_last_days_and_seconds() -> None:
    new_year = at("2026-01-01")
    cases = {
        "0 9 * * MON-FRI": "2026-01-01T09:00+00:00",
        "0 9 L * *": "2026-01-31T09:00+00:00",
        "0 9 1,15 FEB *": "2026-02-01T09:00+00:00",
        "0 9 * * 5#1": "2026-01-02T09:00+00:00",
    }
    for expression, first in cases.items():
        assert local(following(CronGrid(expression), new_year, 1), "UTC") == [first]
    assert following(CronGrid("*/10 * * * * *"), new_year, 2) == [new_year + 10_000, new_year + 20_000]


@pytest.mark.parametrize(
    ("expression", "zone", "message"),
    [
        ("* * * *", "UTC", 'cannot read "\\* \\* \\* \\*" as cron .*such as "30 9'),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month|never occurs"),
        ("@reboot", "UTC", "cannot read"),
        ("CRON_TZ=Europe/Berlin 0 9 * * *", "UTC", "give the time zone in the field that is beside it"),
        ("@every 5m", "UTC", "give an interval, which is a schedule of its own"),
        ("0 0 12 ? * MON", "UTC", 'give "\\*" in place of "\\?"'),
        ("0 0 * * *", "Europe/Nowhere", 'is not a time zone; give an IANA name such as "Europe/Berlin"'),
        ("0 0 * * *", "../etc/passwd", "is not a time zone"),
        ("0 0 * * *", "", "is not a time zone"),
    ],
)
def test_invalid_cron_is_rejected_with_a_reason(expression: str, zone: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CronGrid(expression, zone)


def test_single_times_are_sorted_without_duplicates() -> None:
    grid = TimesGrid((30, 10, 20, 10))
    assert grid.times_ms == (10, 20, 30)
    assert (grid.after(9), grid.after(10), grid.after(30)) == (10, 20, None)
    assert (grid.up_to(9), grid.up_to(25), grid.up_to(99)) == (None, 20, 30)
    with pytest.raises(ValueError, match="at least one"):
        TimesGrid(())


def test_counting_planned_times_is_bounded() -> None:
    assert CronGrid("* * * * *").between(at("2026-01-01"), at("2027-01-01")) == MAX_COUNT
    assert CronGrid("0 * * * *").between(at("2026-01-01"), at("2026-01-02")) == 24


GRIDS = st.one_of(
    st.builds(IntervalGrid, st.integers(5, 5000), st.integers(0, 10_000)),
    st.builds(TimesGrid, st.lists(st.integers(0, 30_000), min_size=1, max_size=20).map(tuple)),
    st.sampled_from([CronGrid("*/7 * * * * *"), CronGrid("*/5 * * * * *", BERLIN)]),
)


@given(GRIDS, st.integers(0, 40_000), st.integers(0, 40_000))
def test_after_up_to_and_between_agree(grid: Grid, first: int, second: int) -> None:
    early, late = sorted((first, second))
    planned: list[int] = []
    moment = grid.after(early)
    while moment is not None and moment <= late:
        planned.append(moment)
        moment = grid.after(moment)
    assert grid.between(early, late) == len(planned)
    last = grid.up_to(late)
    if planned:
        assert last == planned[-1]
    else:
        assert last is None or last <= early


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("@hourly", "2026-01-01T01:00", "2026-01-01T02:00"),
        ("@daily", "2026-01-02T00:00", "2026-01-03T00:00"),
        (" @Midnight ", "2026-01-02T00:00", "2026-01-03T00:00"),
        ("@weekly", "2026-01-04T00:00", "2026-01-11T00:00"),
        ("@monthly", "2026-02-01T00:00", "2026-03-01T00:00"),
        ("@yearly", "2027-01-01T00:00", "2028-01-01T00:00"),
    ],
)
def test_cron_accepts_nicknames(name: str, first: str, second: str) -> None:
    grid = CronGrid(name)
    begin, expected = at("2026-01-01T00:30"), [at(first), at(second)]
    following = grid.after(begin)
    assert following is not None
    assert [following, grid.after(following)] == expected
