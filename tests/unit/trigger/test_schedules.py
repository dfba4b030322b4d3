"""Which times follow each other: calendars across clock changes, windows, jitter, and the plan after an ack."""

from datetime import UTC, datetime

import pytest

from tradewind.scheduler.domain import event_schedule
from tradewind.server.clock import ManualClock
from tradewind.server.schedules.grids import CronGrid, IntervalGrid, TimesGrid
from tradewind.trigger.domain.claim import Ack, Token
from tradewind.trigger.domain.policy import Policy
from tradewind.trigger.domain.schedule import Schedule
from tradewind.trigger.domain.trigger import Trigger, TriggerDraft, TriggerStatus
from tradewind.trigger.rpc import schedule_mapping
from tradewind.trigger.stores.memory import MemoryTriggerStore
from tradewind.trigger.use_cases.open_deliveries import OpenDeliveries
from tradewind.trigger.use_cases.parcel import Opening
from tradewind.trigger.use_cases.receivers import QueueReceivers

KEY_PARTITION = 3


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def utc(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize(
    ("zone", "begin", "days"),
    [
        # Clocks go forward: 02:30 does not exist on the second day, and the trigger fires at the moment of the change.
        ("Europe/Berlin", "2026-03-28T00:00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        # Clocks go back: 02:30 comes twice on the second day, and the trigger fires only the first time.
        ("Europe/Berlin", "2026-10-24T00:00", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
        ("America/New_York", "2026-03-07T00:00", ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"]),
        ("Australia/Lord_Howe", "2026-10-02T12:00", ["2026-10-02T16:00", "2026-10-03T15:30", "2026-10-04T15:30"]),
    ],
)
async def test_nightly_trigger_is_delivered_once_a_night_when_clocks_change(
    zone: str, begin: str, days: list[str]
) -> None:
    clock = ManualClock(ms(begin))
    store = MemoryTriggerStore(clock, Policy())
    saved = await store.save(KEY_PARTITION, TriggerDraft("nightly", "key", Schedule.cron("30 2 * * *", zone)))
    delivery = OpenDeliveries(store.of_queue, QueueReceivers(), 30_000).open(Opening(10))
    await delivery.subscribe([(KEY_PARTITION, 1)])
    delivered = []

    trigger: Trigger | None = saved
    for _ in days:
        assert trigger is not None
        clock.advance(trigger.planned_ms - clock.now_ms())
        delivery.poll_now()
        (due,) = (await delivery.next()).due
        delivered.append(utc(due.trigger.planned_ms))
        token = Token.parse(due.token)
        assert token is not None
        await delivery.answer([Ack(token)], [], [])
        trigger = await store.find(KEY_PARTITION, "nightly")

    delivery.close()
    assert delivered == days


async def test_ack_on_another_stream_is_planned_from_the_stored_trigger() -> None:
    clock = ManualClock(ms("2026-01-01T00:00"))
    store = MemoryTriggerStore(clock)
    await store.save(KEY_PARTITION, TriggerDraft("hourly", "key", Schedule.cron("0 * * * *")))
    receivers = QueueReceivers()
    first, second = (OpenDeliveries(store.of_queue, receivers, 30_000).open(Opening(10)) for _ in range(2))
    await first.subscribe([(KEY_PARTITION, 1)])
    clock.advance(3_600_000)
    first.poll_now()
    (due,) = (await first.next()).due
    token = Token.parse(due.token)
    assert token is not None

    await second.answer([Ack(token)], [], [])

    trigger = await store.find(KEY_PARTITION, "hourly")
    assert trigger is not None
    assert (trigger.status, utc(trigger.planned_ms)) == (TriggerStatus.SCHEDULED, "2026-01-01T02:00")
    first.close()
    second.close()
    await receivers.settle()


def test_missed_times_are_skipped() -> None:
    assert Schedule(TimesGrid((10, 20, 30, 40))).next_after(10, 30) == 40
    assert Schedule(TimesGrid((10, 20))).next_after(10, 30) is None
    assert Schedule.cron("0 * * * *").next_after(0, 3 * 3_600_000) == 4 * 3_600_000


def test_no_time_follows_the_end_of_the_window() -> None:
    assert Schedule(IntervalGrid(10, 0), end_ms=30).next_after(10, 15) == 20
    assert Schedule(IntervalGrid(10, 0), end_ms=30).next_after(20, 25) is None
    assert Schedule(TimesGrid((10, 20)), end_ms=20).next_after(10, 0) is None


def test_schedule_without_any_time_is_rejected() -> None:
    with pytest.raises(ValueError, match="no time between its start and its end"):
        Schedule(TimesGrid((10, 20)), start_ms=30)
    with pytest.raises(ValueError, match="no time between its start and its end"):
        Schedule(CronGrid("0 0 1 1 *"), start_ms=ms("2026-02-01T00:00"), end_ms=ms("2026-03-01T00:00"))


def test_jitter_is_evenly_spread_and_stable_for_a_planned_time() -> None:
    schedule = Schedule(IntervalGrid(1000, 0), jitter_ms=100)
    delays = [schedule.delivery_ms("t", planned) - planned for planned in range(0, 1_000_000, 1000)]

    assert delays == [schedule.delivery_ms("t", planned) - planned for planned in range(0, 1_000_000, 1000)]
    assert (min(delays), max(delays)) == (0, 99)
    assert 45 < sum(delays) / len(delays) < 55


def test_final_statuses_of_cycles_equal_those_of_the_scheduler() -> None:
    assert set(schedule_mapping.ENDINGS) == set(event_schedule.ENDINGS)
    assert schedule_mapping.FLOW_FINISHED == event_schedule.FLOW_FINISHED
