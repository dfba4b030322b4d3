"""Schedules in the definitions of flows."""

from typing import Any

import pytest

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.schedule_definition import (
    CatchUp,
    ScheduleDefinition,
    read_schedule,
    schedule_from_json,
)

HOUR = 3_600_000
START = 1_900_000_800_000
"""The beginning of an hour: 2030-03-17T18:00:00Z."""


@pytest.mark.parametrize(
    "weather",
    [
        {"interval": 5},
        {"interval": "500ms", "jitter": "100ms"},
        {"interval": 3600, "start": "2030-03-17T18:00:00Z", "end": "2031-01-01T00:00:00.250Z", "max_cycles": 7},
        {"cron": "30 9 * * 1-5", "zone": "Europe/Berlin", "catch_up": "none"},
        {"cron": "0 0 * * *", "catch_up": "all", "catch_up_window": 86400},
        {"at": ["2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"]},
        {"interval": 0, "start": "2030-03-17T18:00:00Z"},
        {"interval": 0, "catch_up": "all"},
    ],
)
def test_schedules_round_trip(weather: dict[str, Any]) -> None:
    faults = FaultList()
    definition = read_schedule(Fields(weather, "schedule", faults))
    assert not faults.violations()
    assert definition.to_weather() == weather
    assert schedule_from_json(definition.to_json()) == definition


def test_single_time_needs_no_list_and_is_converted_to_utc() -> None:
    definition = read_schedule(Fields({"at": "2030-03-17T19:00:00+01:00"}, "schedule", FaultList()))
    assert definition.times_ms == (START,)


def test_empty_schedule_runs_once_at_its_anchor() -> None:
    assert ScheduleDefinition().once
    assert schedule_from_json("{}") == ScheduleDefinition()
    planned = ScheduleDefinition().planned(5)
    assert (planned.after(0), planned.after(5)) == (5, None)


def test_interval_is_aligned_with_its_anchor_or_start() -> None:
    assert ScheduleDefinition(HOUR).planned(START + 7).after(START + 8) == START + HOUR + 7
    aligned = ScheduleDefinition(HOUR, start_ms=START)
    assert not aligned.begins_with_the_flow
    assert aligned.planned(START + HOUR + 7).after(0) == START + 2 * HOUR
    assert aligned.planned(0).after(0) == START


def test_jitter_does_not_count_as_lateness() -> None:
    strict = ScheduleDefinition(24 * HOUR, jitter_ms=HOUR, catch_up=CatchUp.NONE)
    assert strict.judge(START, START + HOUR).fire_ms == START
    assert strict.judge(START, START + HOUR + 11_000).fire_ms is None


def test_time_that_jitter_delays_beyond_the_next_one_is_not_missed() -> None:
    verdict = ScheduleDefinition(HOUR, jitter_ms=HOUR).judge(START, START + HOUR + 100)
    assert (verdict.fire_ms, verdict.next_ms, verdict.missed) == (START, START + HOUR, None)


def test_nothing_fires_at_or_after_the_end() -> None:
    for due in (START, START + HOUR):
        verdict = ScheduleDefinition(HOUR, end_ms=START).judge(due, due)
        assert (verdict.fire_ms, verdict.next_ms, verdict.missed) == (None, None, None)


def test_no_next_time_at_the_end() -> None:
    verdict = ScheduleDefinition(HOUR, end_ms=START + HOUR).judge(START, START)
    assert (verdict.fire_ms, verdict.next_ms) == (START, None)
