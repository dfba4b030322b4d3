"""RunDoctor of the access service: each invariant is broken by hand, found and mended."""

import time

import pytest

from tests.rpc.access.conftest import SECRET, Calls, refusal
from tests.servers import RedisServer
from tradewind.access.stores.keys import Keys
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1 import doctor_pb2
from tradewind.api.access.v1.session_pb2 import ROLE_OPERATOR, ROLE_USER
from tradewind.client import Client, ServerFault
from tradewind.server.access.tokens import digest_of, new_token, session_id_of
from tradewind.server.partitions import partition_of

KEYS = Keys()
AT = partition_of("ann")
GONE = digest_of(new_token("ann")) or ""
RATE, SESSIONS = KEYS.rate_limit("ann", "RunFlow"), KEYS.sessions("ann")
BROKEN: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a user without a record": (("ZADD", KEYS.users(AT), "0", "gone"), "index-without-record", "users gone"),
    "an entry without a session": (
        ("ZADD", SESSIONS, "NOW", GONE),
        "index-without-record",
        f"sessions ann {session_id_of(GONE)}",
    ),
    "a counter of calls": (("PERSIST", RATE), "no-time-to-live", "rate_limit ann:RunFlow"),
    "a counter of a day": (("PERSIST", KEYS.quota("ann", "TODAY")), "no-time-to-live", "quota ann:TODAY"),
    "a list of sessions": (("PERSIST", SESSIONS), "no-time-to-live", "sessions ann"),
    "a list that goes too early": (("PEXPIRE", SESSIONS, "60000"), "sessions-forgotten", "ann"),
}
"""A command that breaks an invariant, the check that finds it, and the subject of the finding."""


async def found(calls: Calls, *, mend: bool = False) -> list[tuple[str, str, bool]]:
    stream = calls.root.RunDoctor(doctor_pb2.RunDoctorRequest(mend=mend))
    return [(each.check, each.subject, each.mended) async for answer in stream for each in answer.findings]


async def ann_calls(calls: Calls) -> tuple[str, str]:
    """Set up a user with a session, counted calls and a quota; return the digest of the token, and the day."""
    token = await calls.token("ann", ROLE_USER)
    root = calls.root
    await root.AdmitCall(pb2.AdmitCallRequest(user_id="ann", endpoint="RunFlow", limit="9/d"))
    day = await root.ReserveCalls(pb2.ReserveCallsRequest(user_id="ann", endpoint="RunFlow", quota=9))
    assert await found(calls) == []
    return digest_of(token) or "", day.date


async def check_repair(calls: Calls, check: str, subject: str) -> None:
    assert (check, subject, False) in await found(calls)
    assert (check, subject, True) in await found(calls, mend=True)
    assert await found(calls) == []


@pytest.mark.parametrize("what", BROKEN)
async def test_broken_invariants_are_found_and_repaired(calls: Calls, embedded: RedisServer, what: str) -> None:
    command, check, subject = BROKEN[what]
    _, today = await ann_calls(calls)
    now = str(int(time.time() * 1000))
    arguments = [word.replace("TODAY", today).replace("NOW", now) for word in command]
    assert await embedded.connect().execute_command(*arguments)
    await check_repair(calls, check, subject.replace("TODAY", today))
    for key in (SESSIONS, RATE, KEYS.quota("ann", today)):
        assert await embedded.connect().pttl(key) > 60_000
    await embedded.close_clients()


@pytest.mark.parametrize("expired", [False, True])
async def test_session_without_a_ttl_gets_one_or_is_removed(calls: Calls, embedded: RedisServer, expired: bool) -> None:
    """An open session gets a time to live; one that ended long ago is removed."""
    digest, _ = await ann_calls(calls)
    key, name = KEYS.session(AT, digest), f"ann {session_id_of(digest)}"
    admin = embedded.connect()
    assert await admin.execute_command("PERSIST", key)
    if expired:
        await admin.hset(key, mapping={"created_at": 0, "last_activity": 0})
        await check_repair(calls, "expired-session-left", name)
        assert not await admin.exists(key)
    else:
        await check_repair(calls, "no-time-to-live", f"session {name}")
        assert await admin.pttl(key) > 60_000
    await embedded.close_clients()


async def test_new_user_does_not_inherit_tokens_of_a_lost_user_record(calls: Calls, embedded: RedisServer) -> None:
    digest, _ = await ann_calls(calls)
    await embedded.connect().delete(KEYS.user("ann"))
    await check_repair(calls, "index-without-record", "users ann")
    await calls.set_role("ann", ROLE_OPERATOR)
    authorized = await calls.root.Authorize(pb2.AuthorizeRequest(digest=digest))
    assert authorized.refusal == "TOKEN_INVALID"
    await embedded.close_clients()


async def test_unknown_role_is_reported_but_not_changed(calls: Calls, embedded: RedisServer) -> None:
    """Such a user's tokens are good for nothing; all other users are listed."""
    digest, _ = await ann_calls(calls)
    others = [name for name in (f"user-{number}" for number in range(90)) if partition_of(name) == AT]
    for name in others:
        await calls.set_role(name, ROLE_USER)
    await embedded.connect().hset(KEYS.user("ann"), mapping={"role": "king"})
    assert await found(calls, mend=True) == [("role-unknown", "ann", False)]
    assert (await calls.root.Authorize(pb2.AuthorizeRequest(digest=digest))).refusal == "TOKEN_INVALID"
    first = await calls.root.ListUsers(pb2.ListUsersRequest(page_size=1))
    rest = await calls.root.ListUsers(pb2.ListUsersRequest(page_token=first.next_page_token))
    assert sorted(each.user_id for each in (*first.users, *rest.users)) == sorted(others)
    await calls.set_role("ann", ROLE_USER)
    assert await found(calls) == []
    await embedded.close_clients()


async def test_used_token_can_be_revoked_after_its_index_was_lost(calls: Calls, embedded: RedisServer) -> None:
    """No index leads to such a session: it is indexed again when it is used."""
    digest, _ = await ann_calls(calls)
    authorize = pb2.AuthorizeRequest(digest=digest)
    await embedded.connect().delete(SESSIONS)
    assert not (await calls.root.Authorize(authorize)).refusal
    assert (await calls.root.RevokeSessions(pb2.RevokeSessionsRequest(user_id="ann"))).count == 1
    assert (await calls.root.Authorize(authorize)).refusal == "TOKEN_INVALID"
    await embedded.close_clients()


async def test_doctor_examines_all_users_of_all_partitions(calls: Calls, embedded: RedisServer) -> None:
    """Partitions with more users than one step takes are checked completely."""
    names = [name for name in (f"user-{number}" for number in range(400)) if partition_of(name) == 15][:16]
    for name in ("ann", *names):
        await calls.set_role(name, ROLE_USER)
    broken = ["ann", max(names)]
    for name in broken:
        await embedded.connect().hset(KEYS.user(name), mapping={"role": "king"})
    assert sorted(subject for _, subject, _ in await found(calls)) == sorted(broken)
    await embedded.close_clients()


async def test_what_cannot_be_read_is_reported_and_the_rest_mended(calls: Calls, embedded: RedisServer) -> None:
    await ann_calls(calls)
    await embedded.connect().delete(SESSIONS)
    await embedded.connect().set(SESSIONS, "broken")
    await embedded.connect().execute_command("ZADD", KEYS.users(AT), "0", "gone")
    assert sorted(await found(calls, mend=True)) == [
        ("index-without-record", "users gone", True),
        ("unreadable", "users ann", False),
    ]
    await embedded.connect().set(KEYS.users(AT), "not an index")
    assert await found(calls, mend=True) == [("unreadable", KEYS.users(AT), False)]
    await embedded.close_clients()


async def test_users_may_not_run_the_doctor(calls: Calls) -> None:
    ann = calls.of(await calls.token("ann", ROLE_USER))
    code, reason = await refusal(ann.RunDoctor(doctor_pb2.RunDoctorRequest()).read())
    assert (code.name, reason) == ("PERMISSION_DENIED", "ROLE_TOO_SMALL")


async def test_doctor_client_fails_on_a_service_missing_at_its_address(calls: Calls) -> None:
    """Only the access service may be absent; a service that was not checked is not healthy."""
    async with Client(calls.address, token=SECRET) as client:
        with pytest.raises(ServerFault) as refused:
            await client.run_doctor()
    assert refused.value.reason == "METHOD_UNKNOWN"
