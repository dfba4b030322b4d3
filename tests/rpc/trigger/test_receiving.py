"""Receiving due triggers over a real channel."""

import statistics
from functools import partial

import grpc
from google.protobuf.duration_pb2 import Duration

from tests.rpc.trigger.receiving import (
    ALL,
    Cast,
    Receiver,
    Replica,
    every,
    ms_of,
    now_ms,
    once,
    reason,
    retry_delay_ms,
    violations,
)
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.partitions import partition_of
from tradewind.trigger.stores.keys import ACL, Keys

HOUR = 3_600_000
FALLBACK_S = 5.0
"""A receiver checks by itself only after this time; anything sooner was reported to it."""


async def test_interval_trigger_is_delivered_on_time_and_again_on_its_grid(cast: Cast, replica: Replica) -> None:
    receiver = await cast.receiver(replica)
    anchor_ms = now_ms() + 200
    await replica.save("tick", every(100, anchor_ms), payload='{"n":1}', epoch=3)

    earliest = latest = anchor_ms
    for tick in range(5):
        due = (await receiver.wait_for_due(tick + 1))[tick]
        planned_ms = ms_of(due.planned_time)
        assert (planned_ms - anchor_ms) % 100 == 0
        assert earliest <= planned_ms <= latest
        assert (due.trigger.payload_json, due.trigger.epoch) == ('{"n":1}', 3)
        assert due.trigger.status == trigger_pb2.TRIGGER_STATUS_CLAIMED
        assert 20_000 < ms_of(due.lease_deadline) - now_ms() <= 30_000
        await receiver.ack(due)
        await until(partial(_acked, receiver, replica, tick), "the ack is stored")
        # After a late answer the trigger goes on with the first time on the grid after the answer.
        earliest, latest = planned_ms + 100, max(planned_ms, now_ms()) + 100

    assert all(arrived >= ms_of(due.planned_time) for due, arrived in receiver.arrivals)
    assert receiver.lost == []


async def _acked(receiver: Receiver, replica: Replica, tick: int) -> bool:
    return len(receiver.due) > tick + 1 or await _is_scheduled(replica)


async def test_due_triggers_are_delivered_within_milliseconds(cast: Cast, replica: Replica) -> None:
    receiver = await cast.receiver(replica, ALL)
    medians: list[float] = []
    # A machine that is busy with other things for a second delays one of these rounds, not all.
    for turn in range(5):
        begun = now_ms() + 500
        for index in range(60):
            await replica.save(f"t{index}-{turn}", once(begun + 17 * index), key=f"k{index}")
        await receiver.wait_for_due(60 * turn + 60)
        lateness = sorted(arrived - ms_of(due.planned_time) for due, arrived in receiver.arrivals[60 * turn :])
        print(f"lateness: p50 {statistics.median(lateness)} ms, p95 {lateness[56]} ms, most {lateness[-1]} ms")
        medians.append(statistics.median(lateness))
        if medians[-1] < 50:
            break
    assert min(medians) < 50


async def test_thousand_due_triggers_come_in_few_messages_and_are_acked_in_one(cast: Cast, replica: Replica) -> None:
    ids = await replica.save_spread(1000, now_ms())
    receiver = await cast.receiver(replica, ALL)

    due = await receiver.wait_for_due(1000)
    await receiver.ack(*due)

    assert sorted(receiver.ids) == ids
    assert len(receiver.messages) <= 10
    await until(lambda: _is_completed(replica, ids[-1]), "the last one has completed")
    assert receiver.lost == []


async def _is_completed(replica: Replica, id: str) -> bool:
    return (await replica.find(id, key=id)).status == trigger_pb2.TRIGGER_STATUS_COMPLETED


async def test_two_receivers_share_a_thousand_triggers_without_overlap(cast: Cast, replica: Replica) -> None:
    ids = await replica.save_spread(1000, now_ms() - 1000)

    first = await cast.receiver(replica, range(8))
    second = await cast.receiver(await cast.replica(), range(8, 16))

    await until(lambda: len(first.due) + len(second.due) >= 1000, "all came")
    assert sorted(first.ids + second.ids) == ids
    assert {partition_of(id) for id in first.ids} == set(range(8))
    for receiver in (first, second):
        by_partition: dict[int, list[str]] = {}
        for id in receiver.ids:
            by_partition.setdefault(partition_of(id), []).append(id)
        assert all(came == sorted(came) for came in by_partition.values())


async def test_deliveries_never_exceed_credits(cast: Cast, replica: Replica) -> None:
    for index in range(5):
        await replica.save(f"t{index}", once(now_ms() - 1000 + index))
    receiver = await cast.receiver(replica, credits=2)

    await receiver.wait_for_due(2)
    found = (await replica.stub.FindDue(pb2.FindDueRequest())).triggers
    assert [each.trigger_id for each in found] == ["t2", "t3", "t4"]
    await receiver.ack(receiver.due[0])
    await receiver.wait_for_due(3)
    await receiver.ack(*receiver.due[1:])
    await receiver.wait_for_due(5)

    assert receiver.ids == [f"t{index}" for index in range(5)]


async def test_missed_ticks_are_delivered_once_with_the_oldest_planned_time(cast: Cast, replica: Replica) -> None:
    anchor_ms = now_ms() - 10 * HOUR
    await replica.save("tick", every(3 * HOUR, anchor_ms))

    receiver = await cast.receiver(replica)
    (due,) = await receiver.wait_for_due()
    await receiver.ack(due, next_fire_time=trigger_pb2.DueTrigger(planned_time=due.planned_time).planned_time)
    await until(lambda: _is_planned_at(replica, anchor_ms + 12 * HOUR), "the grid goes on after now")

    assert ms_of(due.planned_time) == anchor_ms


async def _is_planned_at(replica: Replica, ms: int) -> bool:
    return ms_of((await replica.find("tick")).next_fire_time) == ms


async def test_triggers_due_before_any_receiver_came_are_delivered_after_a_restart(cast: Cast) -> None:
    before = await cast.replica()
    ids = await before.save_spread(200, now_ms() + 50)
    await before.stop()
    after = await cast.replica()
    await until(lambda: _has_due(after, 200), "all are due and no receiver is there")

    receiver = await cast.receiver(after, ALL)

    await receiver.wait_for_due(200)
    assert sorted(receiver.ids) == ids


async def _has_due(replica: Replica, count: int) -> bool:
    return len((await replica.stub.FindDue(pb2.FindDueRequest(page_size=1000))).triggers) == count


async def test_claims_of_an_ended_stream_are_due_again_at_once(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms()))
    first = await cast.receiver(replica)
    await first.wait_for_due()
    await first.close()

    second = await cast.receiver(replica)
    (due,) = await second.wait_for_due(timeout=FALLBACK_S - 1)

    assert due.trigger.failures == 0
    assert due.token != first.due[0].token


async def test_receiver_can_end_its_stream_without_error(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms()))
    first = await cast.receiver(replica)
    await first.wait_for_due()

    await first.finish()

    assert first.error is None
    await (await cast.receiver(replica)).wait_for_due(timeout=FALLBACK_S - 1)


async def test_earlier_trigger_saved_on_another_replica_wakes_the_receiver(cast: Cast, replica: Replica) -> None:
    other = await cast.replica()
    await replica.save("later", once(now_ms() + HOUR))
    receiver = await cast.receiver(replica)
    await until(lambda: _has_receiver(cast), "the subscription is stored")

    await other.save("sooner", once(now_ms() + 50))

    await receiver.wait_for_due(timeout=FALLBACK_S - 2)
    assert receiver.ids == ["sooner"]


async def test_new_listeners_are_reported_from_another_replica(cast: Cast, replica: Replica) -> None:
    other = await cast.replica()
    receiver = await cast.receiver(replica, [0], listeners_of=["price", "order"])
    indifferent = await cast.receiver(replica, [1])
    await until(lambda: _has_receiver(cast, 0), "the first subscription is stored")
    await until(lambda: _has_receiver(cast, 1), "the second subscription is stored")

    for name in ("trade", "price", "order"):
        await other.save(f"on-{name}", trigger_pb2.Schedule(event=trigger_pb2.EventSchedule(name=name)))

    reported = partial(_reported_listeners, receiver)
    await until(lambda: reported() == {"price", "order"}, "both are reported", timeout=FALLBACK_S - 2)
    assert indifferent.messages == []


async def test_listeners_of_field_is_validated(cast: Cast, replica: Replica) -> None:
    of_queue = await cast.listener(replica, "q", listeners_of=["price"])
    assert violations(await of_queue.wait_for_error()) == {"listeners_of": "must be empty on a stream of a queue"}
    many = await cast.receiver(replica, [0], listeners_of=["price"] * 11)
    assert violations(await many.wait_for_error()) == {"listeners_of": "must name at most 10 events, names 11"}
    odd = await cast.receiver(replica, [0], listeners_of=["price", "a b"])
    assert violations(await odd.wait_for_error()).keys() == {"listeners_of[1]"}


def _reported_listeners(receiver: Receiver) -> set[str]:
    return {name for message in receiver.messages for name in message.listened}


async def _has_receiver(cast: Cast, partition: int = partition_of("flow")) -> bool:
    store = cast.store.connect(ACL.name)
    return bool(await store.exists(Keys().receiver(partition)))


async def test_higher_epoch_takes_over_a_partition_with_its_claims(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms()))
    old = await cast.receiver(replica, epoch=1)
    await old.wait_for_due()

    new = await cast.receiver(replica, epoch=2)

    (due,) = await new.wait_for_due(timeout=FALLBACK_S - 1)
    assert due.trigger.failures == 0
    await until(lambda: old.ended_partitions == [partition_of("flow")], "the old receiver is notified")
    await old.ack(old.due[0])
    await until(lambda: old.lost == [old.due[0].token], "its claim is void")
    assert not old.ended


async def test_higher_epoch_on_another_replica_takes_over_a_partition(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms()))
    old = await cast.receiver(replica, epoch=1)
    await old.wait_for_due()

    new = await cast.receiver(await cast.replica(), epoch=2)

    await new.wait_for_due(timeout=FALLBACK_S - 1)
    await until(lambda: old.ended_partitions == [partition_of("flow")], "the old receiver is notified")


async def test_subscription_with_lower_epoch_ends_alone(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms()), key="flow")
    await replica.save("tock", once(now_ms()), key="another")
    newer = await cast.receiver(replica, [partition_of("flow")], epoch=5)
    await newer.wait_for_due()

    older = await cast.receiver(replica, [partition_of("flow"), partition_of("another")], epoch=4)

    await older.wait_for_due()
    assert older.ids == ["tock"]
    await until(lambda: older.ended_partitions == [partition_of("flow")], "the older receiver is notified")
    assert newer.ended_partitions == []


async def test_exactly_one_of_two_streams_of_one_epoch_receives(cast: Cast, replica: Replica) -> None:
    first = await cast.receiver(replica, epoch=1)
    second = await cast.receiver(replica, epoch=1)
    await until(lambda: first.ended_partitions or second.ended_partitions, "one of them has ended")

    await replica.save("tick", once(now_ms()))

    going_on = second if first.ended_partitions else first
    await going_on.wait_for_due()
    assert len(first.ended_partitions) + len(second.ended_partitions) == 1
    assert len(first.due) + len(second.due) == 1


async def test_unsubscribed_partition_delivers_no_more_but_claims_can_be_acked(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", every(HOUR, now_ms()))
    receiver = await cast.receiver(replica, ALL)
    (due,) = await receiver.wait_for_due()

    await receiver.send(unsubscribe=[partition_of("flow")], acks=[pb2.DueTriggerAck(token=due.token)])
    await until(lambda: _is_scheduled(replica), "the ack is stored")
    await replica.save("more", once(now_ms()))
    await replica.save("elsewhere", once(now_ms()), key="another")

    await receiver.wait_for_due(2)
    assert receiver.ids == ["tick", "elsewhere"]


async def _is_scheduled(replica: Replica) -> bool:
    return (await replica.find("tick")).status == trigger_pb2.TRIGGER_STATUS_SCHEDULED


async def test_invalid_subscription_fails_only_its_own_stream(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms() + 100), key="another")
    sound = await cast.receiver(replica, [partition_of("another")])
    unsound = await cast.receiver(replica)

    await unsound.send(
        subscribe=[pb2.PartitionSubscription(partition=16), pb2.PartitionSubscription(partition=1, epoch=-1)],
        unsubscribe=[-1],
        acks=[pb2.DueTriggerAck(token="x" * 257)],
    )
    error = await unsound.wait_for_error()

    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    numbers = {"subscribe[0].partition", "subscribe[1].epoch", "unsubscribe[0]"}
    assert set(violations(error)) == {*numbers, "acks[0].token"}
    await sound.wait_for_due()


async def test_all_faults_of_a_first_message_are_reported_at_once(cast: Cast, replica: Replica) -> None:
    receiver = await cast.receiver(replica, credits=-1, lead=Duration(seconds=2), listeners_of=["a b"])

    assert violations(await receiver.wait_for_error()) == {
        "credits": "must be 0 to 10000, is -1",
        "lead": "must be 0 to 1000 ms, is 2000 ms",
        "listeners_of[0]": '"a b" must begin with a letter or digit and contain only letters, digits, ".", "_" and "-"',
    }


async def test_stopping_server_ends_streams_and_gives_back_claims(cast: Cast) -> None:
    leaving, staying = await cast.replica(), await cast.replica()
    await leaving.save("tick", once(now_ms()))
    first = await cast.receiver(leaving)
    await first.wait_for_due()

    await leaving.server.stop()

    error = await first.wait_for_error()
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert retry_delay_ms(error) == 100
    second: Receiver = await cast.receiver(staying)
    (due,) = await second.wait_for_due(timeout=FALLBACK_S - 1)
    assert due.trigger.failures == 0


async def test_large_payloads_are_split_into_messages_of_limited_size(cast: Cast, replica: Replica) -> None:
    payload = '"' + "x" * 60_000 + '"'
    for index in range(100):
        await replica.save(f"t{index:03}", once(now_ms()), key=f"k{index}", payload=payload)

    receiver = await cast.receiver(replica, ALL)

    await receiver.wait_for_due(100)
    assert all(message.ByteSize() <= 2 * 1024 * 1024 for message in receiver.messages)
    assert receiver.error is None
