"""A trigger whose time zone a replica with older tzdata does not know keeps no other from firing."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.older_tzdata import forget_zone
from tests.rpc.trigger.queues import QUEUE, error_of, find, listed, save
from tests.rpc.trigger.receiving import Cast, Replica, now_ms, once, timestamp, violations
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.trigger.stores import schedule_codec

BERLIN = trigger_pb2.Schedule(
    cron=trigger_pb2.CronSchedule(expression="* * * * * *", time_zone="Europe/Berlin"), start=timestamp(1000)
)


@pytest.fixture(autouse=True)
def forget_grids() -> Iterator[None]:
    """Let no other test meet the grids of a zone that was unknown."""
    yield
    schedule_codec.decode.cache_clear()


async def test_trigger_in_unknown_zone_is_postponed_and_others_fire(
    cast: Cast, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(replica, "berlin", BERLIN)
    forget_zone(monkeypatch, "Europe/Berlin")
    with capture_logs() as logs:
        receiver = await cast.listener(replica, QUEUE)
        await save(replica, "fine", once(now_ms()))
        await receiver.ack(*await receiver.wait_for_due())

        async def postponed() -> bool:
            return bool((await find(replica, "berlin")).last_error)

        await until(postponed, "the trigger is postponed")

    assert receiver.ids == ["fine"]
    berlin = {each.trigger_id: each for each in await listed(replica)}["berlin"]
    assert (berlin.status, berlin.failures) == (trigger_pb2.TRIGGER_STATUS_SCHEDULED, 0)
    assert (berlin.schedule, berlin.next_fire_time) == (BERLIN, timestamp(1000))
    assert "is a time zone that this server does not know" in berlin.last_error
    assert [line["time_zone"] for line in logs if line["event"] == "time_zone_unknown"] == ["Europe/Berlin"]


async def test_what_needs_times_in_an_unknown_zone_is_refused_in_words(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(replica, "berlin", BERLIN)
    await replica.stub.PauseTrigger(pb2.PauseTriggerRequest(trigger_id="berlin", queue=QUEUE))
    forget_zone(monkeypatch, "Europe/Berlin")

    refusal = await error_of(replica.stub.ResumeTrigger(pb2.ResumeTriggerRequest(trigger_id="berlin", queue=QUEUE)))

    assert "does not know" in violations(refusal)["time_zone"]


async def test_answer_for_an_unknown_zone_is_lost_and_others_count(
    cast: Cast, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, schedule in (("berlin", BERLIN), ("fine", once(now_ms()))):
        await save(replica, name, schedule)
    holder = await cast.listener(replica, QUEUE)
    due = await holder.wait_for_due(2)
    older = await cast.listener(replica, QUEUE)
    forget_zone(monkeypatch, "Europe/Berlin")

    await older.ack(*due)

    (berlin,) = [each for each in due if each.trigger.trigger_id == "berlin"]
    await until(lambda: older.lost == [berlin.token], "the answer is reported as lost")
    assert (await find(replica, "fine")).status == trigger_pb2.TRIGGER_STATUS_COMPLETED
    assert (await find(replica, "berlin")).status == trigger_pb2.TRIGGER_STATUS_CLAIMED
