"""Which planned times a backfill has, and which of them may begin."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tradewind.scheduler.domain.backfill import Backfill, BackfillDraft, BackfillStatus, BackfillStep, past_times
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition

MINUTE, HOUR = 60_000, 3_600_000
DAY = 24 * HOUR


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_past_times_of_an_interval_align_with_the_anchor_of_its_flow() -> None:
    anchor = at("2026-11-01T00:00:17")
    times = past_times(ScheduleDefinition(HOUR), anchor, at("2026-10-01T00:00:00"), at("2026-10-01T03:00:00"))
    assert times is not None
    assert (times.first_ms, times.last_ms, times.count) == (at("2026-10-01T00:00:17"), at("2026-10-01T02:00:17"), 3)


@pytest.mark.parametrize("anchor", [0, -1])
def test_past_times_of_an_interval_begin_with_the_range_when_no_time_of_the_flow_was_planned(anchor: int) -> None:
    first = at("2026-10-01T05:00:17")
    times = past_times(ScheduleDefinition(HOUR), anchor, first, first + HOUR + 1)
    assert times is not None
    assert (times.first_ms, times.last_ms, times.count) == (first, first + HOUR, 2)


def test_past_times_ignore_start_end_and_max_cycles_of_the_schedule() -> None:
    schedule = ScheduleDefinition(
        HOUR, start_ms=at("2026-11-01T00:30:00"), end_ms=at("2026-12-01T00:00:00"), max_cycles=1
    )
    times = past_times(schedule, 0, at("2026-10-01T00:00:00"), at("2026-10-02T00:00:00"))
    assert times is not None
    assert (times.first_ms, times.count) == (at("2026-10-01T00:30:00"), 24)


def test_past_times_of_cron_follow_its_time_zone() -> None:
    schedule = ScheduleDefinition(cron="30 9 * * 1-5", zone="America/New_York")
    times = past_times(schedule, 0, at("2026-10-30T00:00:00"), at("2026-11-04T00:00:00"))
    assert times is not None
    assert (times.first_ms, times.last_ms, times.count) == (at("2026-10-30T13:30:00"), at("2026-11-03T14:30:00"), 3)


def test_past_times_of_a_schedule_of_single_times() -> None:
    schedule = ScheduleDefinition(times_ms=(5, 50, 500))
    times = past_times(schedule, 0, 5, 500)
    assert times is not None
    assert (times.first_ms, times.last_ms, times.count) == (5, 50, 2)
    for from_ms, to_ms in ((1, 5), (6, 50), (501, 900)):
        assert past_times(schedule, 0, from_ms, to_ms) is None


@pytest.mark.parametrize(
    ("schedule", "days", "count", "exact"),
    [
        (ScheduleDefinition(MINUTE), 30, 43_200, True),
        (ScheduleDefinition(cron="* * * * *"), 6, 8640, True),
        (ScheduleDefinition(cron="* * * * *"), 30, 10_001, False),
    ],
)
def test_count_of_past_times_is_exact_up_to_its_limit(
    schedule: ScheduleDefinition, days: int, count: int, exact: bool
) -> None:
    times = past_times(schedule, 0, at("2026-01-01T00:00:00"), at("2026-01-01T00:00:00") + days * DAY)
    assert times is not None
    assert times.exact is exact
    assert times.count == count if exact else times.count >= count


def test_backfill_begins_at_most_max_running_cycles() -> None:
    times = past_times(ScheduleDefinition(HOUR), 0, 0, 5 * HOUR)
    assert times is not None
    draft = BackfillDraft("f", 0, 5 * HOUR, times.first_ms, times.last_ms, 5, 3, times.schedule, times.anchor_ms, "ada")
    backfill = Backfill(draft, 4, BackfillStatus.RUNNING, 3 * HOUR, 3, 0, 1, 2, 0, 0)
    assert backfill.steps() == [BackfillStep(4, 3 * HOUR, 4 * HOUR), BackfillStep(4, 4 * HOUR, 0)]
    earlier = replace(backfill, position_ms=HOUR, begun=1, completed=0)
    assert earlier.steps() == [BackfillStep(4, HOUR, 2 * HOUR), BackfillStep(4, 2 * HOUR, 3 * HOUR)]
    assert replace(earlier, running=3).steps() == []
    assert replace(backfill, position_ms=0).steps() == []


def test_backfill_of_single_times_ends_with_the_last() -> None:
    times = past_times(ScheduleDefinition(times_ms=(5, 50, 500)), 0, 5, 501)
    assert times is not None
    draft = BackfillDraft("f", 5, 501, times.first_ms, times.last_ms, 3, 9, times.schedule, times.anchor_ms, "ada")
    backfill = Backfill(draft, 4, BackfillStatus.RUNNING, 5, 0, 0, 0, 0, 0, 0)
    assert [step.position_ms for step in backfill.steps()] == [5, 50, 500]
    assert backfill.steps()[-1].following_ms == 0
