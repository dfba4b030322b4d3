"""Saving, removing and finding triggers over a real channel."""

from typing import Any

import grpc
import pytest

from tests.rpc.trigger.queues import error_of
from tests.rpc.trigger.receiving import (
    KEY,
    Cast,
    Replica,
    duration,
    every,
    ms_of,
    now_ms,
    once,
    reason,
    timestamp,
    violations,
)
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.partitions import partition_of
from tradewind.server.schedules.grids import LAST_MS

HOUR = 3_600_000


def with_window(**fields: Any) -> trigger_pb2.Schedule:
    """Return a schedule that fires every second from 1 s after 1970 on, with these additional fields."""
    return trigger_pb2.Schedule(interval=every(1000, 1000).interval, **fields)


async def test_saved_trigger_is_found_unchanged(replica: Replica) -> None:
    anchor_ms = now_ms() + HOUR
    saved = await replica.save("tick", every(1500, anchor_ms), payload='{"flow_id": "momentum"}', epoch=4)

    assert saved.schedule == every(1500, anchor_ms)
    assert saved.payload_json == '{"flow_id": "momentum"}'
    assert (saved.trigger_id, saved.partition_key, saved.epoch, saved.revision) == ("tick", KEY, 4, 1)
    assert (saved.status, saved.failures, saved.last_error) == (trigger_pb2.TRIGGER_STATUS_SCHEDULED, 0, "")
    assert ms_of(saved.next_fire_time) == anchor_ms
    assert abs(ms_of(saved.created_at) - now_ms()) < 5000
    assert await replica.find("tick") == saved
    assert await replica.save("tick", every(1500, anchor_ms), payload='{"flow_id": "momentum"}', epoch=4) == saved


@pytest.mark.parametrize(
    "kind",
    [
        trigger_pb2.Schedule(cron=trigger_pb2.CronSchedule(expression="30 9 * * 1-5", time_zone="America/New_York")),
        trigger_pb2.Schedule(times=trigger_pb2.TimesSchedule(at=[timestamp(1000), timestamp(4_102_444_800_000)])),
        with_window(jitter=duration(250), start=timestamp(1000), end=timestamp(9_000_000_000_000), max_firings=3),
    ],
)
async def test_schedules_of_every_kind_are_found_unchanged(replica: Replica, kind: trigger_pb2.Schedule) -> None:
    saved = await replica.save("tick", kind)

    assert saved.schedule == kind
    assert (await replica.find("tick")).schedule == kind


async def test_trigger_without_id_gets_a_new_id(replica: Replica) -> None:
    first = await replica.save("", once(now_ms() + HOUR))
    second = await replica.save("", once(now_ms() + HOUR))

    assert first.trigger_id != second.trigger_id
    assert (await replica.find(first.trigger_id)).schedule == first.schedule


async def test_remove_trigger_reports_whether_it_existed(replica: Replica) -> None:
    await replica.save("tick", once(now_ms() + HOUR), epoch=2)
    request = pb2.RemoveTriggerRequest(trigger_id="tick", partition_key=KEY, epoch=3)

    assert (await replica.stub.RemoveTrigger(request)).removed
    assert not (await replica.stub.RemoveTrigger(request)).removed
    error = await error_of(replica.find("tick"))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "TRIGGER_NOT_FOUND")


async def test_older_epoch_is_refused_after_newer_save_or_removal(replica: Replica) -> None:
    await replica.save("tick", once(now_ms() + HOUR), epoch=5)

    for attempt in (
        replica.save("tick", once(now_ms() + HOUR), epoch=4),
        replica.stub.RemoveTrigger(pb2.RemoveTriggerRequest(trigger_id="tick", partition_key=KEY, epoch=4)),
    ):
        error = await error_of(attempt)
        assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    await replica.stub.RemoveTrigger(pb2.RemoveTriggerRequest(trigger_id="tick", partition_key=KEY, epoch=6))
    error = await error_of(replica.save("tick", once(now_ms() + HOUR), epoch=5))
    assert reason(error) == "STALE_EPOCH"
    assert "epoch 6, which is newer than 5" in (error.details() or "")


async def test_all_faults_of_a_trigger_are_reported_at_once(replica: Replica) -> None:
    schedule = trigger_pb2.Schedule(interval=trigger_pb2.IntervalSchedule(anchor=timestamp(0)))
    schedule.interval.interval.nanos = -1_000_000
    schedule.interval.anchor.seconds = -1

    error = await error_of(replica.save("a b", schedule, key="", epoch=-1, payload="{oops}"))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason(error) == "INVALID_INPUT"
    assert set(violations(error)) == {
        "trigger.trigger_id",
        "trigger.partition_key",
        "trigger.epoch",
        "trigger.schedule.interval.interval",
        "trigger.schedule.interval.anchor",
        "trigger.payload_json",
    }


@pytest.mark.parametrize(
    ("schedule", "path", "message"),
    [
        (
            trigger_pb2.Schedule(),
            "trigger.schedule",
            "must be set to one of once, interval, cron, times",
        ),
        (
            trigger_pb2.Schedule(once=trigger_pb2.OnceSchedule()),
            "trigger.schedule.once.at",
            "must be set",
        ),
        (every(0, 0), "trigger.schedule.interval.interval", "must be 1 ms to"),
        (
            trigger_pb2.Schedule(interval=trigger_pb2.IntervalSchedule(interval=duration(3 * 10**14))),
            "trigger.schedule.interval.interval",
            "is too long: the first time would be after the year 9999",
        ),
        (
            trigger_pb2.Schedule(cron=trigger_pb2.CronSchedule(expression="61 * * * *")),
            "trigger.schedule.cron",
            'cannot read "61 * * * *" as cron (Bad minute)',
        ),
        (
            trigger_pb2.Schedule(cron=trigger_pb2.CronSchedule(expression="0 * * * *", time_zone="Mars/Base")),
            "trigger.schedule.cron",
            '"Mars/Base" is not a time zone; give an IANA name',
        ),
        (
            trigger_pb2.Schedule(cron=trigger_pb2.CronSchedule(expression="0 0 30 2 *")),
            "trigger.schedule.cron",
            'cannot read "0 0 30 2 *" as cron (Bad day-of-month)',
        ),
        (trigger_pb2.Schedule(times=trigger_pb2.TimesSchedule()), "trigger.schedule.times", "give at least one time"),
        (
            trigger_pb2.Schedule(times=trigger_pb2.TimesSchedule(at=[timestamp(1)] * 1001)),
            "trigger.schedule.times.at",
            "must have at most 1000 times, has 1001",
        ),
        (with_window(jitter=duration(25 * HOUR)), "trigger.schedule.jitter", "must be at most 24 hours"),
        (with_window(start=timestamp(2000), end=timestamp(2000)), "trigger.schedule.end", "must be after the start"),
        (with_window(max_firings=-1), "trigger.schedule.max_firings", "must be 0 (any number) or more, is -1"),
        (with_window(end=timestamp(500)), "trigger.schedule", "the schedule has no time between its start and its end"),
        (
            trigger_pb2.Schedule(
                cron=trigger_pb2.CronSchedule(expression="0 9 * * *", time_zone="Asia/Tokyo"),
                start=timestamp(LAST_MS - HOUR),
            ),
            "trigger.schedule",
            "the schedule has no time between its start and its end",
        ),
    ],
)
async def test_invalid_schedule_is_refused(
    replica: Replica, schedule: trigger_pb2.Schedule, path: str, message: str
) -> None:
    error = await error_of(replica.save("tick", schedule))

    assert list(violations(error)) == [path]
    assert violations(error)[path].startswith(message)


async def test_interval_finer_than_a_millisecond_is_refused(replica: Replica) -> None:
    schedule = every(1, 0)
    schedule.interval.interval.nanos += 500

    error = await error_of(replica.save("tick", schedule))

    assert violations(error) == {"trigger.schedule.interval.interval": "must be a whole number of milliseconds"}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ('"' + "é" * 40_000 + '"', "must have at most 65536 bytes, has 80002"),
        ("[1,]", "is not JSON"),
        ("[" * 501 + "]" * 501, "is nested too deeply"),
        ("[" * 20_000 + "]" * 20_000, "is nested too deeply"),
        ('{"price": 1e999}', "cannot be read: Number out of range"),
    ],
)
async def test_payload_must_be_json_of_at_most_64_kib(replica: Replica, payload: str, message: str) -> None:
    error = await error_of(replica.save("tick", once(0), payload=payload))

    assert violations(error)["trigger.payload_json"].startswith(message)


async def test_save_request_without_trigger_is_refused(replica: Replica) -> None:
    error = await error_of(replica.stub.SaveTrigger(pb2.SaveTriggerRequest()))

    assert violations(error)["trigger"] == "must be set"


async def test_due_triggers_are_paged_by_partition_oldest_first(replica: Replica) -> None:
    begun = now_ms() - 10_000
    for index in range(60):
        await replica.save(f"t{index:02}", once(begun - index), key=f"k{index % 20}")
    await replica.save("later", once(begun + HOUR))

    found: list[trigger_pb2.Trigger] = []
    token = ""
    while True:
        request = pb2.FindDueRequest(page_size=7, page_token=token)
        page = await replica.stub.FindDue(request)
        found += page.triggers
        token = page.next_page_token
        if not token:
            break
        assert len(page.triggers) == 7

    places = [(partition_of(each.partition_key), ms_of(each.next_fire_time)) for each in found]
    assert places == sorted(places)
    assert sorted(each.trigger_id for each in found) == [f"t{index:02}" for index in range(60)]
    some = await replica.stub.FindDue(pb2.FindDueRequest(up_to=timestamp(begun - 50)))
    assert sorted(each.trigger_id for each in some.triggers) == [f"t{index:02}" for index in range(50, 60)]
    assert {each.status for each in found} == {trigger_pb2.TRIGGER_STATUS_SCHEDULED}


async def test_pending_triggers_are_listed_whether_claimed_or_not(cast: Cast, replica: Replica) -> None:
    await replica.save("claimed", once(now_ms()))
    await replica.save("overdue-elsewhere", once(now_ms()), key="another")
    await replica.save("later", once(now_ms() + HOUR))
    await replica.save("done", once(now_ms()))
    receiver = await cast.receiver(replica)
    due = {each.trigger.trigger_id: each for each in await receiver.wait_for_due(2)}
    await receiver.ack(due["done"])

    async def completed() -> bool:
        return (await replica.find("done")).status == trigger_pb2.TRIGGER_STATUS_COMPLETED

    await until(completed, "the acknowledged trigger has completed")

    async def pending() -> dict[str, int]:
        listed: dict[str, int] = {}
        token = ""
        while True:
            request = pb2.FindAllPendingRequest(page_size=1, page_token=token)
            page = await replica.stub.FindAllPending(request)
            listed |= {each.trigger_id: each.status for each in page.triggers}
            token = page.next_page_token
            if not token:
                return listed

    assert await pending() == {
        "claimed": trigger_pb2.TRIGGER_STATUS_CLAIMED,
        "overdue-elsewhere": trigger_pb2.TRIGGER_STATUS_SCHEDULED,
        "later": trigger_pb2.TRIGGER_STATUS_SCHEDULED,
    }


async def test_listing_refuses_invalid_page_size_and_token(replica: Replica) -> None:
    error = await error_of(replica.stub.FindDue(pb2.FindDueRequest(page_size=-1)))
    assert list(violations(error)) == ["page_size"]
    error = await error_of(replica.stub.FindAllPending(pb2.FindAllPendingRequest(page_token="rubbish")))
    assert list(violations(error)) == ["page_token"]


async def test_invalid_ids_are_refused(replica: Replica) -> None:
    error = await error_of(replica.find("a/b", key=""))

    assert set(violations(error)) == {"trigger_id", "partition_key"}


async def test_epochs_of_many_triggers_of_flows_are_found_at_once(replica: Replica) -> None:
    for id, epoch in (("f", 4), ("g", 0)):
        await replica.save(id, once(now_ms() + HOUR), key=id, epoch=epoch)
    await replica.save("elsewhere", once(now_ms() + HOUR), key="f")
    found = await replica.stub.FindEpochs(pb2.FindEpochsRequest(trigger_ids=["g", "gone", "f", "elsewhere", "f"]))
    assert dict(found.epochs) == {"f": 4, "g": 0}


@pytest.mark.parametrize(
    ("trigger_ids", "path"), [([], "trigger_ids"), (["f"] * 1001, "trigger_ids"), (["f", "?"], "trigger_ids[1]")]
)
async def test_epochs_of_too_many_or_odd_names_are_refused(replica: Replica, trigger_ids: list[str], path: str) -> None:
    error = await error_of(replica.stub.FindEpochs(pb2.FindEpochsRequest(trigger_ids=trigger_ids)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert list(violations(error)) == [path]
