"""Answering due triggers over a real channel: acks, refusals, more time, and tokens without a claim."""

from itertools import pairwise

from tests.rpc.trigger.receiving import (
    Cast,
    Replica,
    duration,
    every,
    ms_of,
    now_ms,
    once,
    timestamp,
    violations,
)
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2

HOUR = 3_600_000


async def test_late_token_is_reported_as_lost(cast: Cast) -> None:
    replica = await cast.replica(trigger_lease_seconds=0.3)
    await replica.save("tick", every(HOUR, now_ms()))
    receiver = await cast.receiver(replica)
    first, second = (await receiver.wait_for_due(2))[:2]

    await receiver.ack(first)
    await until(lambda: receiver.lost, "the late token is lost")

    assert receiver.lost == [first.token]
    assert second.trigger.failures == 1
    assert second.trigger.last_error == "the lease lapsed before an answer came"


async def test_unknown_tokens_are_reported_as_lost_and_do_no_harm(cast: Cast, replica: Replica) -> None:
    receiver = await cast.receiver(replica)
    tokens = ["rubbish", "3:tick:1:abc", "99:tick:1:abc", ""]

    await receiver.send(acks=[pb2.DueTriggerAck(token=token) for token in tokens])

    await until(lambda: len(receiver.lost) == 4, "all are reported")
    assert sorted(receiver.lost) == sorted(tokens)
    await replica.save("tick", once(now_ms()))
    await receiver.wait_for_due()


async def test_overlong_tokens_are_refused(cast: Cast, replica: Replica) -> None:
    """A receiver that does not read would otherwise fill the memory with tokens that wait to be reported as lost."""
    receiver = await cast.receiver(replica)

    await receiver.send(acks=[pb2.DueTriggerAck(token="x" * 256), pb2.DueTriggerAck(token="x" * 257)])

    error = await receiver.wait_for_error()
    assert violations(error) == {"acks[1].token": "must have at most 256 characters, has 257"}


async def test_nacked_trigger_is_redelivered_after_its_delay_with_the_error(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", once(now_ms()))
    receiver = await cast.receiver(replica)
    (first,) = await receiver.wait_for_due()
    refused_ms = now_ms()

    nack = pb2.DueTriggerNack(token=first.token, retry_after=duration(150), error="busy" + "." * 2000)
    await receiver.send(nacks=[nack])
    _, second = await receiver.wait_for_due(2)

    assert now_ms() - refused_ms >= 150
    assert second.planned_time == first.planned_time
    assert second.trigger.failures == 1
    assert second.trigger.last_error == ("busy" + "." * 2000)[:1024]


async def test_trigger_nacked_too_often_is_dead(cast: Cast) -> None:
    replica = await cast.replica(trigger_max_failures=3)
    await replica.save("poison", once(now_ms()))
    receiver = await cast.receiver(replica)
    for attempt in range(3):
        due = (await receiver.wait_for_due(attempt + 1))[attempt]
        await receiver.send(nacks=[pb2.DueTriggerNack(token=due.token, retry_after=duration(0), error="hopeless")])

    async def dead() -> bool:
        return (await replica.find("poison")).status == trigger_pb2.TRIGGER_STATUS_DEAD

    await until(dead, "it is dead")
    poison = await replica.find("poison")
    assert (poison.failures, poison.last_error) == (3, "hopeless")
    assert not poison.HasField("next_fire_time")


async def test_postponed_trigger_is_redelivered_any_number_of_times(cast: Cast) -> None:
    replica = await cast.replica(trigger_max_failures=2)
    await replica.save("tick", once(now_ms()))
    receiver = await cast.receiver(replica)
    for attempt in range(4):
        due = (await receiver.wait_for_due(attempt + 1))[attempt]
        again = pb2.DueTriggerNack(token=due.token, retry_after=duration(0), error="busy", postponed=True)
        await receiver.send(nacks=[again])
    assert (await receiver.wait_for_due(5))[4].trigger.failures == 0


async def test_extension_keeps_a_claim_beyond_its_first_lease(cast: Cast) -> None:
    # On a busy machine the extension may be on its way for a while.
    replica = await cast.replica(trigger_lease_seconds=5)
    await replica.save("slow", once(now_ms()))
    await replica.save("fast", once(now_ms()))
    receiver = await cast.receiver(replica)
    due = {each.trigger.trigger_id: each for each in await receiver.wait_for_due(2)}

    await receiver.send(extensions=[pb2.DueTriggerExtension(token=due["slow"].token, lease=duration(60_000))])
    await receiver.wait_for_due(3)
    await receiver.ack(due["slow"])

    async def completed() -> bool:
        return (await replica.find("slow")).status == trigger_pb2.TRIGGER_STATUS_COMPLETED

    await until(completed, "the extended claim still held")
    assert receiver.ids[2] == "fast"


async def test_saving_with_higher_epoch_voids_a_claim(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", every(HOUR, now_ms()), epoch=1)
    receiver = await cast.receiver(replica)
    (first,) = await receiver.wait_for_due()

    await replica.save("tick", every(2 * HOUR, now_ms()), epoch=2)
    _, second = await receiver.wait_for_due(2)
    await receiver.ack(first)
    await until(lambda: receiver.lost == [first.token], "the old claim is void")

    assert second.trigger.epoch == 2


async def test_invalid_answers_are_refused_with_every_fault(cast: Cast, replica: Replica) -> None:
    receiver = await cast.receiver(replica)
    ack = pb2.DueTriggerAck(token="3:tick:1:abc")
    ack.next_fire_time.seconds = -1
    nack = pb2.DueTriggerNack(token="3:tick:1:abc", retry_after=duration(-1000))
    extensions = [pb2.DueTriggerExtension(token="3:tick:1:abc", lease=duration(each)) for each in (0, HOUR, HOUR + 1)]

    await receiver.send(acks=[ack], nacks=[nack], extensions=extensions)

    error = await receiver.wait_for_error()
    leases = {"extensions[0].lease", "extensions[2].lease"}
    assert set(violations(error)) == {"acks[0].next_fire_time", "nacks[0].retry_after", *leases}


async def test_cron_trigger_fires_again_after_each_ack(cast: Cast, replica: Replica) -> None:
    await replica.save("tick", trigger_pb2.Schedule(cron=trigger_pb2.CronSchedule(expression="* * * * * *")))
    receiver = await cast.receiver(replica)

    for count in range(1, 4):
        due = (await receiver.wait_for_due(count))[-1]
        await receiver.ack(due)

    planned = [ms_of(due.planned_time) for due in receiver.due[:3]]
    assert all(time % 1000 == 0 for time in planned)
    assert all(later > earlier for earlier, later in pairwise(planned))
    for due in receiver.due:
        assert ms_of(due.planned_time) <= ms_of(due.delivered_at)
        assert ms_of(due.lease_deadline) - ms_of(due.delivered_at) == 30_000


async def test_ack_naming_a_past_time_redelivers_the_trigger_at_once(cast: Cast, replica: Replica) -> None:
    begun = now_ms()
    times = trigger_pb2.TimesSchedule(at=[timestamp(begun - 3000), timestamp(begun - 2000), timestamp(begun - 1000)])
    await replica.save("late", trigger_pb2.Schedule(times=times))
    receiver = await cast.receiver(replica)

    (first,) = await receiver.wait_for_due(1)
    await receiver.ack(first, next_fire_time=timestamp(begun - 2000))
    second = (await receiver.wait_for_due(2))[-1]
    await receiver.ack(second)

    assert [ms_of(due.planned_time) for due in receiver.due] == [begun - 3000, begun - 2000]

    async def completed() -> bool:
        return (await replica.find("late")).status == trigger_pb2.TRIGGER_STATUS_COMPLETED

    await until(completed, "no time is left, as the third has passed, too")
