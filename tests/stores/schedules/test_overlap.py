"""Cycles that are shorter and longer than their interval, by the clock."""

import pytest

from tests.stores.schedules.conftest import Make


async def test_a_cycle_of_3_s_each_minute_starts_at_0_60_and_120(make: Make) -> None:
    works = make(cycle_ms=3_000)
    scheduler = await works.replica()
    await works.start(scheduler, interval=60)
    await works.run(scheduler, 170)
    assert await works.cycles(scheduler) == [(n, 60 * n, 60 * n, "completed") for n in range(3)]
    assert await works.ledger(scheduler) == [(0, "fired"), (60, "fired"), (120, "fired")]


@pytest.mark.parametrize(
    ("overlap", "cycles", "ledger"),
    [
        # Planned time and start of each cycle; outcome of each planned time.
        ("skip", [(0, 0), (120, 120), (240, 240)], "fired skipped fired skipped fired skipped"),
        ("queue_one", [(0, 0), (60, 90), (120, 180), (180, 270)], "fired fired fired fired dropped queued"),
        ("queue_all", [(0, 0), (60, 90), (120, 180), (180, 270)], "fired fired fired fired queued queued"),
        ("cancel_running", [(60 * n, 60 * n) for n in range(6)], "fired fired fired fired fired fired"),
        ("allow", [(60 * n, 60 * n) for n in range(6)], "fired fired fired fired fired fired"),
    ],
)
async def test_a_cycle_of_90_s_each_minute_follows_the_overlap_policy(
    make: Make, overlap: str, cycles: list[tuple[int, int]], ledger: str
) -> None:
    works = make(cycle_ms=90_000)
    scheduler = await works.replica()
    await works.start(scheduler, interval=60, overlap=overlap)
    await works.run(scheduler, 350)
    found = await works.cycles(scheduler)
    assert [(planned, start) for _, planned, start, _ in found] == cycles
    assert [number for number, *_ in found] == list(range(len(cycles)))
    assert await works.ledger(scheduler) == [(60 * n, outcome) for n, outcome in enumerate(ledger.split())]
    ended = "cancelled" if overlap == "cancel_running" else "completed"
    assert {status for *_, status in found[:-2]} == {ended}
