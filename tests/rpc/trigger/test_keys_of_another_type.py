"""A key of another type costs its own partition only, until the doctor has removed it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from tests.rpc.trigger.queues import QUEUE, error_of, find, listed, on_event, publish, save
from tests.rpc.trigger.receiving import ALL, Cast, Receiver, Replica, every, now_ms, once, reason
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.trigger.v1 import doctor_pb2, trigger_pb2
from tradewind.server.partitions import partition_of
from tradewind.trigger.stores.keys import Keys

KEYS = Keys()
BROKEN, SOUND = "broken", "flow"
PARTITION = partition_of(BROKEN)
OF_DELIVERY = [KEYS.due(PARTITION), KEYS.claimed(PARTITION), KEYS.receiver(PARTITION)]
BESIDE_IT = [KEYS.dead(PARTITION), KEYS.firings(PARTITION), KEYS.alarms(PARTITION)]
POLL_S = 0.1
HOUR = 3_600_000


async def replace(store: RedisServer, key: str) -> None:
    """Put something else in the place of a key."""
    admin = store.connect()
    await admin.delete(key)
    await admin.set(key, "something else")


def unreadable(logs: Sequence[Any]) -> list[str]:
    return [line["what"] for line in logs if line["event"] == "record_unreadable"]


async def mended(replica: Replica) -> set[tuple[str, str]]:
    call = replica.stub.RunDoctor(doctor_pb2.RunDoctorRequest(mend=True))
    return {(each.check, each.subject) async for answer in call for each in answer.findings if each.mended}


async def fires(replica: Replica, receiver: Receiver, id: str, key: str) -> None:
    """Save a trigger that is due, and acknowledge it."""
    await replica.save(id, once(now_ms()), key=key)
    await until(lambda: id in receiver.ids, f"{id} has come")
    await receiver.ack(receiver.due[receiver.ids.index(id)])


@pytest.mark.parametrize("key", OF_DELIVERY)
async def test_other_partitions_are_delivered_and_this_one_after_the_doctor(
    cast: Cast, embedded: RedisServer, key: str
) -> None:
    replica = await cast.replica(trigger_poll_seconds=POLL_S)
    receiver = await cast.receiver(replica, ALL)
    await fires(replica, receiver, "a", BROKEN)
    await replica.save("held", every(60_000, now_ms()), key=BROKEN)
    await until(lambda: "held" in receiver.ids, "the claim has come")
    await replace(embedded, key)
    with capture_logs() as logs:
        await receiver.ack(receiver.due[receiver.ids.index("held")])
        await fires(replica, receiver, "b", SOUND)
        # Another scheduler takes over, as after a restart.
        other = await cast.receiver(replica, ALL, epoch=2)
        await fires(replica, other, "c", SOUND)
        await until(lambda: key in unreadable(logs), "the key is logged")
        await fires(replica, other, "d", SOUND)
    assert unreadable(logs) == [key]
    assert (receiver.error, other.error) == (None, None)

    assert ("key-of-another-type", key) in await mended(replica)
    await fires(replica, other, "e", BROKEN)
    assert other.error is None


@pytest.mark.parametrize("key", [KEYS.due(PARTITION), KEYS.claimed(PARTITION)])
async def test_calls_that_need_the_key_name_it(replica: Replica, embedded: RedisServer, key: str) -> None:
    await replace(embedded, key)
    await replica.save("a", once(now_ms()), key=SOUND)
    error = await error_of(replica.save("b", once(now_ms()), key=BROKEN))
    assert (error.code(), reason(error)) == (grpc.StatusCode.DATA_LOSS, "RECORD_UNREADABLE")
    assert key in str(error.details())


@pytest.mark.parametrize("key", BESIDE_IT)
async def test_what_is_only_looked_at_holds_up_no_trigger(cast: Cast, embedded: RedisServer, key: str) -> None:
    replica = await cast.replica(trigger_poll_seconds=POLL_S, trigger_max_failures=1)
    receiver = await cast.receiver(replica, [PARTITION])
    await replace(embedded, key)
    await embedded.connect().execute_command("ZADD", KEYS.due(PARTITION), 1, "gone")
    await fires(replica, receiver, "a", BROKEN)
    await replica.save("dies", once(now_ms()), key=BROKEN)
    due = (await receiver.wait_for_due(2))[1]
    await receiver.send(nacks=[{"token": due.token, "error": "broken"}])
    await fires(replica, receiver, "b", BROKEN)
    assert receiver.error is None
    assert {subject for _, subject in await mended(replica)} == {key}


@pytest.mark.parametrize("name", ["due", "claimed", "all"])
async def test_indexes_of_a_queue_are_made_again_from_its_records(
    cast: Cast, replica: Replica, embedded: RedisServer, name: str
) -> None:
    receiver = await cast.listener(replica, QUEUE)
    await save(replica, "far", once(now_ms() + HOUR))
    await save(replica, "held", once(now_ms()))
    await until(lambda: "held" in receiver.ids, "the claim has come")
    key = KEYS.of_queue(QUEUE).index(partition_of(QUEUE), name)
    await replace(embedded, key)
    assert ("key-of-another-type", key) in await mended(replica)
    await mended(replica)
    assert await mended(replica) == set()
    assert {each.trigger_id for each in await listed(replica)} == {"far", "held"}
    await receiver.ack(receiver.due[0])
    await until(partial(has_completed, replica, "held"), "the claim was settled")


async def has_completed(replica: Replica, id: str) -> bool:
    return (await find(replica, id)).status == trigger_pb2.TRIGGER_STATUS_COMPLETED


async def test_an_event_fires_the_triggers_of_other_queues(replica: Replica, embedded: RedisServer) -> None:
    for queue in ("a", "b", "c"):
        await save(replica, "listener", on_event("news"), queue)
    key = KEYS.of_queue("b").due(partition_of("b"))
    await replace(embedded, key)
    error = await error_of(publish(replica, "news", id="1"))
    assert (reason(error), key in str(error.details())) == ("RECORD_UNREADABLE", True)
    for queue in ("a", "c"):
        assert (await find(replica, "listener", queue)).pending == 1
    await mended(replica)
    published = await publish(replica, "news", id="1")
    assert (published.fired, published.duplicates) == (1, 2)
