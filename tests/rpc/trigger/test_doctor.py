"""RunDoctor of the trigger service: each invariant is broken by hand, found and mended."""

from typing import Any

import pytest

from tests.rpc.trigger.queues import QUEUE, on_event, save
from tests.rpc.trigger.receiving import Replica, now_ms, once
from tests.servers import RedisServer
from tradewind.api.trigger.v1 import doctor_pb2
from tradewind.server.partitions import partition_of

HOUR = 3_600_000
BASE = f"trading_flow:{{t{partition_of(QUEUE)}}}:"
OF_QUEUE = f"queue:{QUEUE}:"
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
        ("unreadable", f"all {QUEUE}/a", False),
        ("unreadable", f"due {QUEUE}/a", False),
        ("unreadable", f"{BASE}{OF_QUEUE}triggers:dead", False),
    ]
