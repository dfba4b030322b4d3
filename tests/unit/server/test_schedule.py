"""Windows of planned times, and catching up with those that passed."""

from hypothesis import given
from hypothesis import strategies as st

from tradewind.server.schedules.grids import CronGrid, IntervalGrid, TimesGrid
from tradewind.server.schedules.schedule import Schedule, Span, Verdict, catch_up

EVERY_TEN = Schedule(IntervalGrid(10, 0))


def test_schedule_window_bounds_planned_times() -> None:
    schedule = Schedule(IntervalGrid(10, 0), start_ms=25, end_ms=50)
    assert [schedule.after(moment) for moment in (0, 30, 39, 40, 60)] == [30, 40, 40, None, None]
    assert [schedule.up_to(moment) for moment in (20, 29, 30, 49, 500)] == [None, None, 30, 40, 40]
    assert schedule.span(0, 500) == Span(30, 40, 2)
    assert schedule.span(40, 500) is None


def test_trigger_on_time_fires_and_misses_nothing() -> None:
    assert catch_up(EVERY_TEN, 20, 20, 1000) == Verdict(20, 30)
    assert catch_up(EVERY_TEN, 20, 29, 1000, fire_all=True) == Verdict(20, 30)


def test_clock_slightly_behind_does_not_delay_a_due_trigger() -> None:
    assert catch_up(EVERY_TEN, 20, 19, 1000) == Verdict(20, 30)
    assert catch_up(EVERY_TEN, 20, 19, 1000, fire_all=True) == Verdict(20, 30)
    # The same for the very first time of a schedule.
    assert catch_up(Schedule(IntervalGrid(10, 20)), 20, 19, 1000) == Verdict(20, 30)


def test_latest_of_passed_times_fires() -> None:
    assert catch_up(EVERY_TEN, 20, 57, 1000) == Verdict(50, 60, Span(20, 40, 3))


def test_all_passed_times_fire_one_after_another_when_asked() -> None:
    assert catch_up(EVERY_TEN, 20, 57, 1000, fire_all=True) == Verdict(20, 30)
    assert catch_up(EVERY_TEN, 20, 57, 21, fire_all=True) == Verdict(40, 50, Span(20, 30, 2))


def test_times_older_than_the_catch_up_window_are_missed() -> None:
    daily = Schedule(IntervalGrid(1000, 0))
    assert catch_up(daily, 2000, 2600, 500) == Verdict(None, 3000, Span(2000, 2000, 1))
    assert catch_up(daily, 2000, 2600, 500, fire_all=True) == Verdict(None, 3000, Span(2000, 2000, 1))


def test_time_exactly_as_old_as_the_window_fires() -> None:
    assert catch_up(EVERY_TEN, 20, 50, 30, fire_all=True) == Verdict(20, 30)
    assert catch_up(EVERY_TEN, 20, 57, 17, fire_all=True) == Verdict(40, 50, Span(20, 30, 2))
    daily = Schedule(IntervalGrid(1000, 0))
    assert catch_up(daily, 2000, 2500, 500) == Verdict(2000, 3000)


def test_time_that_is_planned_for_now_fires() -> None:
    assert catch_up(EVERY_TEN, 20, 60, 5, fire_all=True) == Verdict(60, 70, Span(20, 50, 4))
    assert catch_up(EVERY_TEN, 20, 60, 5) == Verdict(60, 70, Span(20, 50, 4))


def test_time_whose_jitter_may_be_ahead_has_not_passed() -> None:
    assert catch_up(EVERY_TEN, 20, 31, 1000, jitter_ms=10) == Verdict(20, 30)
    assert catch_up(EVERY_TEN, 20, 40, 1000, jitter_ms=10) == Verdict(30, 40, Span(20, 20, 1))
    assert catch_up(EVERY_TEN, 20, 57, 5, jitter_ms=10, fire_all=True) == Verdict(None, 50, Span(20, 40, 3))
    daily = Schedule(IntervalGrid(1000, 0))
    assert catch_up(daily, 2000, 2600, 500, jitter_ms=100) == Verdict(2000, 3000)
    assert catch_up(daily, 2000, 3050, 500, jitter_ms=100) == Verdict(None, 3000, Span(2000, 2000, 1))


def test_last_planned_time_has_no_successor() -> None:
    schedule = Schedule(TimesGrid((10, 20, 30)))
    assert catch_up(schedule, 30, 31, 1000) == Verdict(30, None)
    assert catch_up(schedule, 10, 500, 100) == Verdict(None, None, Span(10, 30, 3))
    assert catch_up(schedule, 10, 500, 100, fire_all=True) == Verdict(None, None, Span(10, 30, 3))


@given(
    st.sampled_from([EVERY_TEN, Schedule(CronGrid("*/3 * * * * *")), Schedule(IntervalGrid(7, 3), 0, 900)]),
    st.integers(0, 800),
    st.integers(0, 3000),
    st.integers(0, 400),
    st.sampled_from([0, 5, 60]),
    st.booleans(),
)
def test_every_planned_time_is_fired_or_missed_exactly_once(
    schedule: Schedule, start: int, late: int, window: int, jitter: int, fire_all: bool
) -> None:
    due = schedule.after(start)
    if due is None:
        return
    now, settled = due + late, due - 1
    while due is not None and due <= now:
        verdict = catch_up(schedule, due, now, window, jitter_ms=jitter, fire_all=fire_all)
        missed = verdict.missed.count if verdict.missed else 0
        ends = [at for at in (verdict.fire_ms, verdict.missed.last_ms if verdict.missed else None) if at is not None]
        assert ends, "something must become of what is due"
        assert schedule.grid.between(settled, max(ends)) == missed + (verdict.fire_ms is not None)
        if verdict.fire_ms is not None:
            assert verdict.fire_ms >= now - jitter - window
        settled, due = max(ends), verdict.next_ms
        assert due is None or due > settled
