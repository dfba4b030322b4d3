"""RunDoctor of the trigger service: each invariant is broken by hand, found and mended."""

from functools import partial
from typing import Any

import grpc
import pytest

from tests.rpc.trigger.queues import QUEUE, find, on_event, save
from tests.rpc.trigger.receiving import Cast, Replica, now_ms, once, reason
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.trigger.v1 import doctor_pb2, trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.server.partitions import partition_of

HOUR = 3_600_000
BASE = f"trading_flow:{{t{partition_of(QUEUE)}}}:"
OF_QUEUE = f"queue:{QUEUE}:"
HISTORY = "triggers:firings"
BROKEN: list[tuple[tuple[Any, ...], str, str]] = [
    (("ZREM", OF_QUEUE + "triggers:due", "a"), "trigger-not-due", f"{QUEUE}/a"),
    (("ZADD", OF_QUEUE + "triggers:due", 1e15, "gone"), "index-without-record", f"due {QUEUE}/gone"),
    (("ZADD", OF_QUEUE + "triggers:claimed", 1e15, "gone"), "index-without-record", f"claimed {QUEUE}/gone"),
    (("ZADD", OF_QUEUE + "triggers:dead", 1e15, "gone"), "index-without-record", f"dead {QUEUE}/gone"),
    (("ZADD", OF_QUEUE + "triggers:all", 1e15, "gone"), "index-without-record", f"all {QUEUE}/gone"),
    (("ZADD", "triggers:due", 1e15, "gone"), "index-without-record", "due gone"),
    (("PEXPIRE", OF_QUEUE + "trigger:a", HOUR), "trigger-expires", f"{QUEUE}/a"),
    (("HDEL", "events:news", f"{QUEUE}/b"), "trigger-not-listening", f"{QUEUE}/b"),
    (("HSET", OF_QUEUE + "trigger:a", "status", "claimed"), "claim-without-lease", f"{QUEUE}/a"),
    (("SET", OF_QUEUE + HISTORY, "x"), "key-of-another-type", BASE + OF_QUEUE + HISTORY),
    (("ZREM", OF_QUEUE + "triggers:all", "a"), "trigger-not-listed", f"{QUEUE}/a"),
    (("SET", HISTORY, "x"), "key-of-another-type", BASE + HISTORY),
]


async def found(replica: Replica, *, mend: bool = False) -> list[tuple[str, str, bool]]:
    call = replica.stub.RunDoctor(doctor_pb2.RunDoctorRequest(mend=mend))
    return [(each.check, each.subject, each.mended) async for answer in call for each in answer.findings]


@pytest.mark.parametrize(("command", "check", "subject"), BROKEN, ids=[f"{b[1]}-{b[0][1]}" for b in BROKEN])
async def test_broken_invariants_are_found_and_repaired(
    replica: Replica, embedded: RedisServer, command: tuple[Any, ...], check: str, subject: str
) -> None:
    await save(replica, "a", once(now_ms() + HOUR))
    await save(replica, "b", on_event("news"))
    assert await found(replica) == []
    verb, key, *rest = command
    await embedded.connect().execute_command(verb, BASE + key, *rest)
    assert (check, subject, False) in await found(replica)
    assert (check, subject, True) in await found(replica, mend=True)
    await found(replica, mend=True)
    assert await found(replica) == []


async def test_triggers_fire_without_a_history_until_the_doctor_has_replaced_it(
    cast: Cast, replica: Replica, embedded: RedisServer
) -> None:
    await embedded.connect().set(BASE + OF_QUEUE + HISTORY, "no history")
    receiver = await cast.listener(replica, QUEUE)
    await save(replica, "a", once(now_ms()))
    await receiver.ack(*await receiver.wait_for_due())
    await until(partial(has_fired, replica, "a"), "the trigger has fired")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await replica.stub.ListFirings(pb2.ListFiringsRequest(queue=QUEUE))
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.DATA_LOSS, "RECORD_UNREADABLE")
    assert BASE + OF_QUEUE + HISTORY in str(caught.value.details())

    await found(replica, mend=True)
    await save(replica, "b", once(now_ms()))
    await receiver.ack((await receiver.wait_for_due(2))[1])
    await until(partial(has_fired, replica, "b"), "the other trigger has fired")
    listed = await replica.stub.ListFirings(pb2.ListFiringsRequest(queue=QUEUE))
    assert [line.trigger_id for line in listed.firings] == ["b"]
    assert receiver.error is None


async def has_fired(replica: Replica, id: str) -> bool:
    return (await find(replica, id)).status == trigger_pb2.TRIGGER_STATUS_COMPLETED


async def test_list_of_queues_of_another_type_is_reported_and_the_rest_mended(
    replica: Replica, embedded: RedisServer
) -> None:
    await save(replica, "a", once(now_ms() + HOUR))
    admin = embedded.connect()
    await admin.delete(BASE + "triggers:queues")
    await admin.set(BASE + "triggers:queues", "no list")
    await admin.execute_command("ZADD", BASE + "triggers:due", 1e15, "gone")
    assert sorted(await found(replica, mend=True)) == [
        ("index-without-record", "due gone", True),
        ("unreadable", BASE + "triggers:queues", False),
    ]


async def test_what_cannot_be_read_is_reported_and_the_rest_mended(replica: Replica, embedded: RedisServer) -> None:
    await save(replica, "a", once(now_ms() + HOUR))
    await embedded.connect().execute_command("HSET", BASE + OF_QUEUE + "trigger:a", "expires", "never")
    await embedded.connect().execute_command("ZADD", BASE + OF_QUEUE + "triggers:due", 1e15, "gone")
    await embedded.connect().set(BASE + OF_QUEUE + "triggers:dead", "not an index")
    assert sorted(await found(replica, mend=True)) == [
        ("index-without-record", f"due {QUEUE}/gone", True),
        ("key-of-another-type", f"{BASE}{OF_QUEUE}triggers:dead", True),
        ("unreadable", f"all {QUEUE}/a", False),
        ("unreadable", f"due {QUEUE}/a", False),
    ]
