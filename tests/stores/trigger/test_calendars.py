"""What the ports say about schedules other than single times and plain intervals, for every store."""

from dataclasses import replace

import pytest

from tests.stores.trigger.bench import DAY, HOUR, Bench, ids, token
from tradewind.server.schedules.grids import CronGrid, IntervalGrid, TimesGrid
from tradewind.trigger.domain.claim import Ack
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import TriggerStatus

MINUTE = 60_000


def times(*times_ms: int) -> Schedule:
    return Schedule(TimesGrid(times_ms))


async def test_cron_trigger_begins_after_now_or_at_its_start_even_if_past(bench: Bench) -> None:
    schedule = Schedule.cron("0 * * * *")
    hour = bench.now // HOUR * HOUR

    saved = await bench.save("from-now", schedule)
    begun = await bench.save("from-start", replace(schedule, start_ms=hour - 2 * HOUR))

    assert (saved.planned_ms, saved.schedule) == (hour + HOUR, schedule)
    assert begun.planned_ms == hour - 2 * HOUR
    bench.clock.advance(HOUR)
    assert (await bench.save("from-now", schedule)).planned_ms == hour + HOUR


async def test_cron_trigger_continues_at_the_acked_time_or_completes_without_one(bench: Bench) -> None:
    hour = bench.now // HOUR * HOUR
    await bench.save("tick", Schedule.cron("0 * * * *"))
    bench.clock.advance(HOUR)

    await bench.ack(await bench.claim_one(), next_ms=hour + 2 * HOUR)

    tick = await bench.found("tick")
    assert (tick.status, tick.planned_ms, tick.fired) == (TriggerStatus.SCHEDULED, hour + 2 * HOUR, 1)
    await bench.ack(await bench.claim_late("tick", HOUR))
    assert (await bench.found("tick")).status is TriggerStatus.COMPLETED


async def test_ack_naming_a_past_time_makes_the_trigger_due_at_once(bench: Bench) -> None:
    begun = bench.now
    await bench.save("a-times", times(begun, begun + 1000, begun + 2000))
    await bench.save("b-cron", Schedule(CronGrid("* * * * *"), start_ms=begun // MINUTE * MINUTE))
    bench.clock.advance(HOUR)

    for _ in range(2):
        for due in await bench.claim():
            await bench.ack(due, next_ms=due.trigger.planned_ms + 1000)

    assert [due.trigger.planned_ms for due in await bench.claim()] == [begun // MINUTE * MINUTE + 2000, begun + 2000]


async def test_ack_naming_no_later_time_is_ignored(bench: Bench) -> None:
    begun = bench.now
    await bench.save("times", times(begun, begun + 1000))

    await bench.ack(await bench.claim_one(), next_ms=begun)

    assert (await bench.found("times")).status is TriggerStatus.COMPLETED


async def test_no_time_is_planned_at_or_after_the_end(bench: Bench) -> None:
    begun = bench.now
    await bench.save("tick", Schedule(IntervalGrid(1000, begun), end_ms=begun + 2000))

    await bench.ack(await bench.claim_one())
    await bench.ack(await bench.claim_late("tick", 1000))

    assert (await bench.found("tick")).status is TriggerStatus.COMPLETED
    await bench.save("named", Schedule(IntervalGrid(1000, bench.now), end_ms=bench.now + 2000))
    await bench.ack(await bench.claim_one(), next_ms=bench.now + 2000)
    assert (await bench.found("named")).status is TriggerStatus.COMPLETED


async def test_interval_with_a_later_start_begins_on_its_grid(bench: Bench) -> None:
    begun = bench.now
    saved = await bench.save("tick", Schedule(IntervalGrid(1000, begun - 300), start_ms=begun + 5000))

    assert saved.planned_ms == begun + 5700


async def test_trigger_saved_after_its_end_is_completed(bench: Bench) -> None:
    schedule = Schedule(CronGrid("0 * * * *"), end_ms=bench.now - HOUR)

    saved = await bench.save("late", schedule)

    assert (saved.status, saved.next_fire_ms, saved.revision) == (TriggerStatus.COMPLETED, None, 1)
    assert await bench.find("late") == saved
    assert await bench.save("late", schedule, epoch=2) == replace(saved, epoch=2, revision=2)
    bench.clock.advance(7 * DAY)
    assert await bench.find("late") is None


async def test_scheduled_trigger_saved_with_a_past_end_is_no_longer_due(bench: Bench) -> None:
    await bench.save("tick", 0)

    await bench.save("tick", Schedule(CronGrid("0 * * * *"), end_ms=bench.now - HOUR))

    assert await bench.claim() == []


async def test_last_permitted_firing_completes_trigger_and_raised_epoch_keeps_count(bench: Bench) -> None:
    schedule = Schedule(IntervalGrid(1000, bench.now), max_firings=3)
    await bench.save("tick", schedule)
    await bench.ack(await bench.claim_one())
    assert (await bench.save("tick", schedule, epoch=2)).fired == 1
    await bench.ack(await bench.claim_late("tick", 1000))
    await bench.nack(await bench.claim_late("tick", 1000), retry_after_ms=0)
    assert (await bench.found("tick")).status is TriggerStatus.SCHEDULED

    await bench.ack(await bench.claim_one(), next_ms=bench.now + 1000)

    tick = await bench.found("tick")
    assert (tick.status, tick.fired) == (TriggerStatus.COMPLETED, 3)
    assert (await bench.save("tick", schedule, epoch=3)).fired == 0


async def test_jitter_delays_delivery_reproducibly_and_keeps_planned_time(bench: Bench) -> None:
    begun = bench.now
    schedule = Schedule(IntervalGrid(HOUR, begun), jitter_ms=10 * MINUTE)
    saved = await bench.save("tick", schedule)
    delays = []

    for tick in range(4):
        planned = begun + tick * HOUR
        place = schedule.delivery_ms("tick", planned)
        assert (await bench.scheduled()).end is not None
        bench.clock.advance(place - 1 - bench.now)
        assert await bench.claim() == []
        bench.clock.advance(1)
        due = await bench.claim_one()
        assert due.trigger.planned_ms == planned
        await bench.give_back(due)
        delays.append(place - planned)
        await bench.ack(await bench.claim_one(), next_ms=planned + HOUR)

    assert saved.planned_ms == begun
    assert all(0 <= delay < 10 * MINUTE for delay in delays)
    assert len(set(delays)) == 4


@pytest.mark.parametrize("grid", [IntervalGrid(MINUTE, 0), CronGrid("* * * * *")], ids=["interval", "cron"])
async def test_time_whose_jitter_has_not_passed_is_not_skipped(bench: Bench, grid: IntervalGrid | CronGrid) -> None:
    first = bench.now - bench.now % MINUTE + MINUTE
    schedule = Schedule(grid, jitter_ms=MINUTE, start_ms=first)
    await bench.save("tick", schedule)
    for planned in range(first, first + 30 * MINUTE, MINUTE):
        bench.clock.advance(max(0, schedule.delivery_ms("tick", planned) - bench.now))
        due = await bench.claim_one()
        assert due.trigger.planned_ms == planned
        # The next time may be planned for a moment that has passed by now; it has its own delay.
        bench.clock.advance(MINUTE // 4)
        ack = Ack(token(due.token)).with_next_time(due.trigger, bench.now)
        await bench.ack(due, next_ms=ack.next_ms)


async def test_times_that_passed_longer_ago_than_their_jitter_are_skipped(bench: Bench) -> None:
    begun = bench.now
    await bench.save("tick", Schedule(IntervalGrid(MINUTE, begun), jitter_ms=MINUTE))
    bench.clock.advance(10 * MINUTE)
    await bench.ack(await bench.claim_one())
    assert (await bench.found("tick")).planned_ms == begun + 10 * MINUTE


async def test_claim_carries_its_delivery_time(bench: Bench) -> None:
    await bench.save("tick", 0)
    bench.clock.advance(70)

    (due,) = await bench.claim(lease_ms=5000)

    assert (due.delivered_ms, due.deadline_ms) == (bench.now, bench.now + 5000)


async def test_schedules_of_every_kind_are_stored_unchanged(bench: Bench) -> None:
    begun = bench.now
    schedules = {
        "cron": Schedule.cron("30 2 * * 1-5", "Europe/Berlin"),
        "times": times(begun + 5, begun + 3, begun + 5),
        "whole": Schedule(CronGrid("*/5 * * * * *"), 1000, begun, begun + DAY, 7),
        "every": Schedule(IntervalGrid(1000, begun), max_firings=2),
    }
    for id, schedule in schedules.items():
        await bench.save(id, schedule)

    assert {id: (await bench.found(id)).schedule for id in schedules} == schedules
    bench.clock.advance(10)
    assert "times" in ids(await bench.claim())
