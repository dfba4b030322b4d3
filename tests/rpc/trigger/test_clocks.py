"""Clients and trigger services whose clocks are not the store's."""

import time

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.clocks import set_clock
from tests.rpc.trigger.receiving import Cast
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.client.trigger_schedules import schedule_of

SPARE_S = 60


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
async def test_interval_without_anchor_begins_by_store_clock(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    clock = time.time
    set_clock(monkeypatch, ahead_s)
    replica = await cast.replica()
    trigger = trigger_pb2.Trigger(trigger_id="tick", queue="mine", schedule=schedule_of(every=3600))
    before = clock()
    saved = (await replica.stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger))).trigger
    assert before - SPARE_S <= saved.next_fire_time.seconds - 3600 <= clock() + SPARE_S
    assert saved.schedule.interval.anchor == saved.next_fire_time


async def test_interval_without_anchor_begins_at_its_start(cast: Cast) -> None:
    replica = await cast.replica()
    start = Timestamp(seconds=4_000_000_000)
    schedule = trigger_pb2.Schedule(start=start)
    schedule.interval.interval.CopyFrom(Duration(seconds=60))
    trigger = trigger_pb2.Trigger(trigger_id="tick", queue="mine", schedule=schedule)
    saved = (await replica.stub.SaveTrigger(pb2.SaveTriggerRequest(trigger=trigger))).trigger
    assert saved.next_fire_time == start
