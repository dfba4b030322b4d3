"""Triggers of queues over a real channel: who receives them, and how people manage them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.rpc.trigger.queues import HOUR, QUEUE, error_of, find, listed, on_event, on_finished, publish, save
from tests.rpc.trigger.receiving import (
    Cast,
    Receiver,
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
from tradewind.server.schedules.jitter import delay_ms


async def test_queues_and_flows_never_get_each_others_triggers(cast: Cast, replica: Replica) -> None:
    scheduler = await cast.receiver(replica, range(16))
    mine = await cast.listener(replica, QUEUE)
    other = await cast.listener(replica, "others")

    await save(replica, "same", once(now_ms()))
    await save(replica, "same", once(now_ms()), "others")
    await replica.save("same", once(now_ms()), key=QUEUE)

    for receiver, queue in ((scheduler, ""), (mine, QUEUE), (other, "others")):
        (due,) = await receiver.wait_for_due(1)
        assert (due.trigger.trigger_id, due.trigger.queue) == ("same", queue)
        await receiver.ack(due)
    assert [len(receiver.due) for receiver in (scheduler, mine, other)] == [1, 1, 1]
    assert not any(receiver.lost for receiver in (scheduler, mine, other))


async def test_receivers_of_a_queue_share_triggers_without_double_delivery(cast: Cast, replica: Replica) -> None:
    second_replica = await cast.replica()
    receivers = [
        await cast.listener(where, QUEUE, credits=20) for where in (replica, replica, second_replica, second_replica)
    ]
    at_ms = now_ms() + 300
    await asyncio.gather(*(save(replica, f"t{index:03}", once(at_ms)) for index in range(300)))

    async def acknowledge(receiver: Receiver) -> None:
        answered = 0
        while sum(len(each.due) for each in receivers) < 300 or answered < len(receiver.due):
            fresh = receiver.due[answered:]
            answered += len(fresh)
            if fresh:
                await receiver.ack(*fresh)
            await asyncio.sleep(0.005)

    await asyncio.wait_for(asyncio.gather(*map(acknowledge, receivers)), 60)

    ids = [id for receiver in receivers for id in receiver.ids]
    assert sorted(ids) == [f"t{index:03}" for index in range(300)]
    assert sum(bool(receiver.due) for receiver in receivers) > 1

    async def all_done() -> bool:
        counts = await replica.stub.CountTriggers(pb2.CountTriggersRequest(queue=QUEUE))
        return (counts.scheduled, counts.claimed) == (0, 0)

    await until(all_done, "all were acknowledged")
    assert not any(receiver.lost for receiver in receivers)


async def test_claims_of_a_leaving_receiver_go_to_another(cast: Cast, replica: Replica) -> None:
    first = await cast.listener(replica, QUEUE)
    await save(replica, "report", once(now_ms()))
    await first.wait_for_due(1)
    second = await cast.listener(replica, QUEUE)

    await first.close()

    (due,) = await second.wait_for_due(1)
    assert (due.trigger.trigger_id, due.trigger.failures) == ("report", 0)


async def test_stream_of_a_queue_refuses_partitions(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    await receiver.send(subscribe=[pb2.PartitionSubscription(partition=partition_of(QUEUE), epoch=9)])

    error = await receiver.wait_for_error()

    assert violations(error) == {"subscribe": "must be empty on a stream of a queue"}


async def test_delay_counts_from_the_save(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    asked_ms = now_ms()
    saved = await save(replica, "soon", trigger_pb2.Schedule(delay=duration(150)))

    (due,) = await receiver.wait_for_due(1)

    assert asked_ms + 150 <= ms_of(due.planned_time) <= ms_of(saved.created_at) + 150
    assert ms_of(due.delivered_at) >= ms_of(due.planned_time)
    assert saved.schedule.delay == duration(150)


async def test_manually_fired_trigger_is_delivered_now_and_keeps_its_planned_time(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    planned = now_ms() + HOUR
    await save(replica, "nightly", every(HOUR, planned), payload='{"report": "daily"}')
    request = pb2.FireTriggerRequest(queue=QUEUE, trigger_id="nightly", payload_json='{"by": "me"}', request_id="r1")

    first, second = [await replica.stub.FireTrigger(request) for _ in range(2)]

    assert (first.fired, first.event_id, second.fired) == (True, "r1", False)
    (due,) = await receiver.wait_for_due(1)
    assert (due.trigger.payload_json, due.event.payload_json) == ('{"report": "daily"}', '{"by": "me"}')
    await receiver.ack(due)
    assert ms_of((await find(replica, "nightly")).next_fire_time) == planned
    missing = pb2.FireTriggerRequest(queue=QUEUE, trigger_id="missing")
    assert reason(await error_of(replica.stub.FireTrigger(missing))) == "TRIGGER_NOT_FOUND"


async def test_paused_trigger_does_not_fire_until_resumed(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    await save(replica, "tick", every(50, now_ms() + 50))
    await save(replica, "listens", on_event("order"))
    held = (await receiver.wait_for_due(1))[0]

    for id in ("tick", "listens"):
        paused = (
            await replica.stub.PauseTrigger(pb2.PauseTriggerRequest(queue=QUEUE, trigger_id=id, note="ann"))
        ).trigger
        assert (paused.paused, paused.pause_note) == (True, "ann")
    await receiver.ack(held)

    async def at_rest() -> bool:
        return (await find(replica, "tick")).status == trigger_pb2.TRIGGER_STATUS_PAUSED

    await until(at_rest, "the claim has ended")
    assert (await publish(replica, "order")).matched == 0
    count = len(receiver.due)
    resumed_ms = now_ms()
    for id in ("tick", "listens"):
        await replica.stub.ResumeTrigger(pb2.ResumeTriggerRequest(queue=QUEUE, trigger_id=id))
    due = (await receiver.wait_for_due(count + 1))[count]
    assert ms_of(due.planned_time) >= resumed_ms - 50
    assert (await publish(replica, "order")).fired == 1
    await save(replica, "done", once(now_ms()))
    await receiver.ack(next(due for due in await receiver.wait_for_due(count + 3) if due.trigger.trigger_id == "done"))

    async def ended() -> bool:
        return (await find(replica, "done")).status == trigger_pb2.TRIGGER_STATUS_COMPLETED

    await until(ended, "the single time has fired")
    error = await error_of(replica.stub.PauseTrigger(pb2.PauseTriggerRequest(queue=QUEUE, trigger_id="done")))
    assert reason(error) == "WRONG_STATUS"


@pytest.mark.parametrize("is_ahead", [True, False], ids=["ahead", "passed"])
async def test_time_is_skipped_by_a_pause_once_its_jitter_has_passed(replica: Replica, is_ahead: bool) -> None:
    since = now_ms() - 120_000
    fits: Callable[[int], bool] = (lambda delay: delay > 600_000) if is_ahead else (lambda delay: delay < 9000)
    planned = next(at for at in range(since, since + 60_000) if fits(delay_ms("tick", at, HOUR)))
    schedule = every(HOUR, planned)
    schedule.jitter.CopyFrom(duration(HOUR))
    await save(replica, "tick", schedule)
    await replica.stub.PauseTrigger(pb2.PauseTriggerRequest(queue=QUEUE, trigger_id="tick"))
    resumed = (await replica.stub.ResumeTrigger(pb2.ResumeTriggerRequest(queue=QUEUE, trigger_id="tick"))).trigger
    assert ms_of(resumed.next_fire_time) == (planned if is_ahead else planned + HOUR)


async def test_triggers_of_a_queue_are_listed_in_pages_in_any_status(replica: Replica) -> None:
    for index in range(7):
        await save(replica, f"t{index}", once(now_ms() + HOUR))
    await save(replica, "listens", on_event("order"))
    await replica.stub.RemoveTrigger(pb2.RemoveTriggerRequest(queue=QUEUE, trigger_id="t3"))
    await save(replica, "elsewhere", once(now_ms() + HOUR), "others")

    found = await listed(replica, page_size=3)

    assert sorted(each.trigger_id for each in found) == ["listens", "t0", "t1", "t2", "t4", "t5", "t6"]
    assert {each.queue for each in found} == {QUEUE}
    counts = await replica.stub.CountTriggers(pb2.CountTriggersRequest(queue=QUEUE))
    assert (counts.triggers, counts.scheduled, counts.orphans) == (7, 6, 0)
    assert violations(await error_of(listed(replica, ""))).keys() == {"queue"}


async def test_triggers_with_large_schedules_fit_pages_and_messages(cast: Cast, replica: Replica) -> None:
    """A trigger with 1000 times takes 14 KiB."""
    times = trigger_pb2.TimesSchedule(at=[timestamp(now_ms() - 1000 + n) for n in range(1000)])
    for index in range(320):
        await save(replica, f"t{index:03}", trigger_pb2.Schedule(times=times), payload='"' + "x" * 4000 + '"')

    assert len(await listed(replica, page_size=1000)) == 320
    receiver = await cast.listener(replica, QUEUE)
    await until(lambda: receiver.error or len(receiver.due) == 320, "all have come")
    assert receiver.error is None
    assert all(message.ByteSize() <= 2 * 1024 * 1024 for message in receiver.messages)


async def test_fire_history_is_listed_in_pages(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    for index in range(5):
        await save(replica, f"t{index}", once(now_ms()))
        await receiver.ack((await receiver.wait_for_due(index + 1))[index])

    async def history() -> list[str]:
        ids: list[str] = []
        token = ""
        while True:
            page = await replica.stub.ListFirings(pb2.ListFiringsRequest(queue=QUEUE, page_size=2, page_token=token))
            ids += [line.trigger_id for line in page.firings]
            token = page.next_page_token
            if not token:
                return ids

    await until(lambda: _is_complete(history), "all have ended")
    assert await history() == ["t4", "t3", "t2", "t1", "t0"]


async def _is_complete(history: Any) -> bool:
    return len(await history()) == 5


@pytest.mark.parametrize(
    ("schedule", "queue", "faults"),
    [
        (on_event("a b"), QUEUE, {"trigger.schedule.event.name"}),
        (on_event("tick"), "", {"trigger.partition_key"}),
        (on_event("tick", '{"price": {"$gt": []}}'), QUEUE, {"trigger.schedule.event.filter_json"}),
        (on_event("tick", '{"$not":' * 6 + "{}" + "}" * 6), QUEUE, {"trigger.schedule.event.filter_json"}),
        (once(0), "a/b", {"trigger.queue"}),
        (trigger_pb2.Schedule(delay=duration(-1)), QUEUE, {"trigger.schedule.delay"}),
        (on_finished(["a"], ["failed", "done"]), QUEUE, {"trigger.schedule.flow_finished.statuses[1]"}),
        (on_finished([f"{n:0100}" for n in range(50)], []), QUEUE, {"trigger.schedule.flow_finished.flow_ids"}),
    ],
)
async def test_invalid_trigger_is_refused_with_the_path_of_its_fault(
    replica: Replica, schedule: trigger_pb2.Schedule, queue: str, faults: set[str]
) -> None:
    assert set(violations(await error_of(save(replica, "t", schedule, queue)))) == faults


async def test_flows_cannot_be_paused_or_fired_through_trigger_service(replica: Replica) -> None:
    for call in (
        replica.stub.PauseTrigger(pb2.PauseTriggerRequest(trigger_id="flow")),
        replica.stub.FireTrigger(pb2.FireTriggerRequest(trigger_id="flow")),
    ):
        assert violations(await error_of(call))["queue"].startswith("must be set: flows are")
