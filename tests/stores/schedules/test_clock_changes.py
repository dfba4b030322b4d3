"""Nights in which clocks change, from a flow's cron expression to its cycles."""

from datetime import UTC, datetime

import pytest

from tests.stores.schedules.conftest import Make

DAY = 24 * 3600


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def utc(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%d %H:%M")


@pytest.mark.parametrize(
    ("zone", "time", "begin", "nights"),
    [
        # Clocks go forward in the second night, in Lord Howe by half an hour: the time of day does not exist, and the
        # cycle begins at the moment of the change.
        ("Europe/Berlin", "30 2", "2026-03-28T00:00", ["28 01:30", "29 01:00", "30 00:30"]),
        ("America/New_York", "30 2", "2026-03-07T00:00", ["07 07:30", "08 07:00", "09 06:30"]),
        ("Australia/Lord_Howe", "15 2", "2026-10-02T12:00", ["02 15:45", "03 15:30", "04 15:15"]),
        # Clocks go back: the time of day comes twice, and the cycle begins only the first time.
        ("Europe/Berlin", "30 2", "2026-10-24T00:00", ["24 00:30", "25 00:30", "26 01:30"]),
        ("America/New_York", "30 1", "2026-10-31T00:00", ["31 05:30", "01 05:30", "02 06:30"]),
        ("Australia/Lord_Howe", "45 1", "2026-04-03T12:00", ["03 14:45", "04 14:45", "05 15:15"]),
    ],
)
async def test_a_nightly_flow_begins_one_cycle_each_night(
    make: Make, zone: str, time: str, begin: str, nights: list[str]
) -> None:
    works = make(at=ms(begin))
    scheduler = await works.replica()
    await works.start(scheduler, schedule={"cron": f"{time} * * *", "zone": zone})
    await works.run(scheduler, 3 * DAY)
    cycles = await works.cycles(scheduler)
    assert [utc(works.begin_ms + int(planned * 1000)) for _, planned, _, _ in cycles] == nights
    assert [start for _, _, start, _ in cycles] == [planned for _, planned, _, _ in cycles]
    assert [outcome for _, outcome in await works.ledger(scheduler)] == ["fired"] * 3


@pytest.mark.parametrize("begin", ["2026-03-28T22:10", "2026-10-24T22:10"])
async def test_half_hourly_flow_keeps_its_pace_through_clock_changes(make: Make, begin: str) -> None:
    works = make(at=ms(begin))
    scheduler = await works.replica()
    await works.start(scheduler, schedule={"cron": "*/30 * * * *", "zone": "Europe/Berlin"})
    await works.run(scheduler, 6 * 3600)
    assert [planned for _, planned, _, _ in await works.cycles(scheduler)] == [20 * 60 + 1800 * n for n in range(12)]
