"""Schedules, policy and tokens."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.server.schedules.grids import LAST_MS
from tradewind.trigger.domain.claim import Token
from tradewind.trigger.domain.event import firing_id, trigger_of
from tradewind.trigger.domain.lead import NO_LEAD, Lead
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import PENDING, TRANSITIONS, TriggerStatus


@pytest.mark.parametrize(
    ("planned", "now", "next_ms"),
    [
        (1000, 1000, 2000),
        (1000, 1999, 2000),
        (1000, 2000, 3000),
        (1000, 999, 2000),
        (1000, 500, 2000),
        (1000, 7300, 8000),
    ],
)
def test_next_tick_is_on_the_grid_and_after_now(planned: int, now: int, next_ms: int) -> None:
    assert Schedule.every(1000, 0).next_after(planned, now) == next_ms


def test_first_time_ahead_is_the_first_that_is_not_delivered_yet() -> None:
    schedule = replace(Schedule.every(1000, 0), jitter_ms=5000)
    delivered = {at: schedule.delivery_ms("tick", at) for at in range(0, 60_000, 1000)}
    for now in range(0, 40_000, 250):
        assert schedule.first_ahead("tick", 0, now) == min(at for at, due in delivered.items() if due > now)


def test_no_time_is_ahead_after_the_last() -> None:
    schedule = replace(Schedule.every(1000, 0), end_ms=2001)
    assert [schedule.first_ahead("tick", 0, now) for now in (0, 1999, 2000)] == [1000, 2000, None]


@given(
    interval=st.integers(1, 10**10),
    anchor=st.integers(0, 2 * 10**12),
    ticks=st.integers(0, 1000),
    late=st.integers(-(10**6), 10**12),
)
def test_grid_never_drifts(interval: int, anchor: int, ticks: int, late: int) -> None:
    planned = anchor + ticks * interval
    next_ms = Schedule.every(interval, anchor).next_after(planned, planned + late)

    assert next_ms is not None
    assert (next_ms - anchor) % interval == 0
    assert next_ms > max(planned, planned + late)
    assert next_ms - interval <= max(planned, planned + late)


def test_no_time_follows_a_single_time_or_the_last_possible_time() -> None:
    assert Schedule.once(1000).next_after(1000, 2000) is None
    assert Schedule.every(10, LAST_MS - 5).next_after(LAST_MS - 5, 0) is None


@pytest.mark.parametrize(("anchor", "interval"), [(-1, 1), (LAST_MS + 1, 1), (0, -1), (0, LAST_MS + 1)])
def test_interval_or_anchor_out_of_range_is_rejected(anchor: int, interval: int) -> None:
    with pytest.raises(ValueError, match="must"):
        Schedule.every(interval, anchor)


@pytest.mark.parametrize("at_ms", [-1, LAST_MS + 1])
def test_single_time_out_of_range_is_rejected(at_ms: int) -> None:
    with pytest.raises(ValueError, match="must"):
        Schedule.once(at_ms)


def test_zero_interval_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1 ms"):
        Schedule.every(0, 0)


def test_backoff_doubles_up_to_its_maximum() -> None:
    policy = Policy(backoff_initial_ms=1000, backoff_max_ms=300_000)

    assert [policy.backoff_ms(failures) for failures in (0, 1, 2, 3, 9, 10, 10**6)] == [
        0,
        1000,
        2000,
        4000,
        256_000,
        300_000,
        300_000,
    ]


def test_policy_with_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_failures must be at least 1"):
        Policy(max_failures=0)


def test_token_names_partition_and_trigger() -> None:
    token = Token.parse("12:nightly.report_2-b:7:a1b2")

    assert token is not None
    assert (token.partition, token.trigger_id, token.text) == (12, "nightly.report_2-b", "12:nightly.report_2-b:7:a1b2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tick",
        "16:tick:1:a",
        "-1:tick:1:a",
        "01:tick:1:a",
        "1:ti ck:1:a",
        "1:*:1:a",
        "1:tick:0:a",
        "1:tick:1:",
        "1:tick:1:ü",
        "1:tick:1:a:b",
        "1:tick:1:a\n",
        f"1:{'x' * 129}:1:a",
    ],
)
def test_malformed_token_is_not_parsed(text: str) -> None:
    assert Token.parse(text) is None


def test_firing_id_follows_from_trigger_and_event() -> None:
    firing = firing_id("nightly.report", "order 7 / ü")
    token = Token.parse(f"3:{firing}:1:a1")

    assert firing == firing_id("nightly.report", "order 7 / ü") != firing_id("nightly.report", "order 8")
    assert trigger_of(firing) == trigger_of("nightly.report") == "nightly.report"
    assert token is not None
    assert token.trigger_id == firing


def test_transitions_are_defined_for_every_status() -> None:
    assert set(TRANSITIONS) == set(TriggerStatus)
    assert {TriggerStatus.SCHEDULED, TriggerStatus.CLAIMED} == PENDING


def test_lead_grows_with_what_is_due_together_up_to_the_longest() -> None:
    lead = Lead(500, shares=2)
    assert [lead.for_count(due) for due in (0, 1, 100, 281, 1000)] == [50, 51, 210, 499, 500]
    assert Lead(500).for_count(100) == 130
    assert NO_LEAD.for_count(1000) == 0
