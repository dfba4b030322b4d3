"""AccessService over a real channel: who is let in, sessions and tokens, and notifying servers of changes."""

from datetime import UTC, time
from typing import Any
from zoneinfo import ZoneInfo

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.gate_calls import call
from tests.rpc.access.conftest import SECRET, Calls, Start, refusal
from tests.servers import RedisServer
from tests.waiting import until
from tests.zones import zone_far_from_midnight
from tradewind.access.stores.keys import Keys
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.api.access.v1.doctor_pb2 import RunDoctorRequest
from tradewind.api.access.v1.session_pb2 import (
    ROLE_ADMIN,
    ROLE_OPERATOR,
    ROLE_SERVICE,
    ROLE_USER,
    ROLE_WORKER,
    SESSION_KIND_LOGIN,
    SESSION_KIND_TOKEN,
    User,
)
from tradewind.grpc_engine.bearer import with_token
from tradewind.server.access.gate import Gate
from tradewind.server.access.identity import Identity
from tradewind.server.access.remote import RemoteAuthority
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of
from tradewind.server.channels import open_channel
from tradewind.server.faults import Unauthenticated, Unavailable
from tradewind.server.paging import page_token
from tradewind.server.partitions import PARTITIONS

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


async def test_calls_without_a_valid_token_are_refused(calls: Calls) -> None:
    request = pb2.WhoAmIRequest()
    assert await refusal(calls.of(None).WhoAmI(request)) == (UNAUTHENTICATED, "TOKEN_MISSING")
    assert await refusal(calls.of("guessed").WhoAmI(request)) == (UNAUTHENTICATED, "TOKEN_INVALID")
    assert await refusal(calls.of("tw_00_" + "A" * 43).WhoAmI(request)) == (UNAUTHENTICATED, "TOKEN_INVALID")
    assert (await calls.root.WhoAmI(request)).role == ROLE_SERVICE


async def test_session_is_created_listed_refreshed_and_revoked(calls: Calls) -> None:
    ann = calls.of(await calls.token("ann", ROLE_USER, label="laptop", lifetime=Duration(seconds=600)))
    session = await ann.CreateSession(pb2.CreateSessionRequest(label="shell"))
    assert session.session.kind == SESSION_KIND_LOGIN
    mine = calls.of(session.token)
    who = await mine.WhoAmI(pb2.WhoAmIRequest())
    assert (who.user_id, who.role, who.session_id) == ("ann", ROLE_USER, session.session.session_id)

    listed = (await mine.ListSessions(pb2.ListSessionsRequest())).sessions
    known = {each.label: each for each in listed}
    assert {name: each.kind for name, each in known.items()} == {
        "shell": SESSION_KIND_LOGIN,
        "laptop": SESSION_KIND_TOKEN,
    }
    assert known["laptop"].expires_at.seconds - known["laptop"].created_at.seconds == 600

    refreshed = calls.of((await mine.RefreshSession(pb2.RefreshSessionRequest())).token)
    await until(lambda: _is_refused(mine), "the old token is refused")
    assert (await refreshed.WhoAmI(pb2.WhoAmIRequest())).user_id == "ann"
    assert (await refreshed.RevokeSessions(pb2.RevokeSessionsRequest(keep_current=True))).count == 1
    none_left = await refreshed.RevokeSessions(pb2.RevokeSessionsRequest(keep_current=True))
    assert (none_left.count, none_left.HasField("count")) == (0, True)
    await until(lambda: _is_refused(ann), "the first token is refused")
    (left,) = (await refreshed.ListSessions(pb2.ListSessionsRequest())).sessions
    await refreshed.RevokeSession(pb2.RevokeSessionRequest(session_id=left.session_id))
    await until(lambda: _is_refused(refreshed), "the last token is refused")


async def _is_refused(stub: Any) -> bool:
    try:
        await stub.WhoAmI(pb2.WhoAmIRequest())
    except grpc.aio.AioRpcError as error:
        return error.code() is UNAUTHENTICATED
    return False


async def test_idle_session_expires(start: Start) -> None:
    calls = await start(access_idle_seconds=1, access_cache_seconds=0)
    token = await calls.token("ann", ROLE_USER)
    session = (await calls.of(token).CreateSession(pb2.CreateSessionRequest())).token
    authorize = pb2.AuthorizeRequest(digest=digest_of(session) or "")
    # Nobody uses the session; listing it does not count as use.

    async def one_left() -> bool:
        return len((await calls.root.ListSessions(pb2.ListSessionsRequest(user_id="ann"))).sessions) == 1

    await until(one_left, "the session has ended")
    assert (await calls.root.Authorize(authorize)).refusal == "TOKEN_EXPIRED"
    assert await refusal(calls.of(session).WhoAmI(pb2.WhoAmIRequest())) == (UNAUTHENTICATED, "TOKEN_EXPIRED")


async def test_admin_only_calls_are_refused_to_other_roles(calls: Calls) -> None:
    ann = calls.of(await calls.token("ann", ROLE_USER))
    olga = calls.of(await calls.token("olga", ROLE_OPERATOR))
    boss = calls.of(await calls.token("boss", ROLE_ADMIN))
    pool = calls.of(await calls.token("pool", ROLE_WORKER))
    user = pb2.SetUserRequest(user=User(user_id="ann", role=ROLE_ADMIN))
    for stub in (ann, olga, pool):
        assert await refusal(stub.SetUser(user)) == (DENIED, "ROLE_TOO_SMALL")
        assert await refusal(stub.Authorize(pb2.AuthorizeRequest())) == (DENIED, "ROLE_TOO_SMALL")
    assert await refusal(boss.Authorize(pb2.AuthorizeRequest())) == (DENIED, "ROLE_TOO_SMALL")
    assert await refusal(ann.ListSessions(pb2.ListSessionsRequest(user_id="boss"))) == (DENIED, "NOT_OWNER")
    for stub, name in ((ann, "ann"), (olga, "olga")):
        with pytest.raises(grpc.aio.AioRpcError, match=f'"{name}": use a token of its owner, or ask an admin'):
            await stub.CreateToken(pb2.CreateTokenRequest(user_id="boss"))
        assert await refusal(stub.CreateToken(pb2.CreateTokenRequest(user_id="boss"))) == (DENIED, "NOT_OWNER")
        assert await refusal(stub.CreateToken(pb2.CreateTokenRequest(role=ROLE_ADMIN))) == (DENIED, "NOT_OWNER")
        assert await refusal(stub.RevokeSessions(pb2.RevokeSessionsRequest(user_id="boss"))) == (DENIED, "NOT_OWNER")
    assert len((await olga.ListSessions(pb2.ListSessionsRequest(user_id="boss"))).sessions) == 1
    names = sorted(each.user_id for each in (await olga.ListUsers(pb2.ListUsersRequest())).users)
    assert names == ["ann", "boss", "olga", "pool"]
    assert (await boss.SetUser(user)).user.role == ROLE_ADMIN
    await until(lambda: _may_list(ann), "the role has changed")


async def _may_list(stub: Any) -> bool:
    try:
        await stub.ListUsers(pb2.ListUsersRequest())
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_lifetime_below_a_millisecond_is_rounded_up(calls: Calls) -> None:
    """Leaving out the lifetime means the longest one; a lifetime below a millisecond is not the same as none."""
    moment = pb2.CreateTokenRequest(user_id="ann", role=ROLE_USER, lifetime=Duration(nanos=1))
    session = (await calls.root.CreateToken(moment)).session
    assert session.expires_at.ToMilliseconds() == session.created_at.ToMilliseconds() + 1
    before = pb2.CreateTokenRequest(user_id="ann", role=ROLE_USER, lifetime=Duration(nanos=-1))
    assert await refusal(calls.root.CreateToken(before)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_invalid_requests_are_refused(calls: Calls) -> None:
    invalid = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    root = calls.root
    assert await refusal(root.CreateToken(pb2.CreateTokenRequest(user_id="a b", role=ROLE_USER))) == invalid
    assert await refusal(root.CreateToken(pb2.CreateTokenRequest(user_id="default", role=ROLE_USER))) == invalid
    assert await refusal(root.CreateToken(pb2.CreateTokenRequest(user_id="ann", role=ROLE_SERVICE))) == invalid
    for lifetime, said in ((Duration(seconds=100 * 86_400), "100 d"), (Duration(seconds=-5), "-5 s")):
        request = pb2.CreateTokenRequest(user_id="ann", role=ROLE_USER, lifetime=lifetime)
        with pytest.raises(
            grpc.aio.AioRpcError, match=f"lifetime: must be from 0, for the longest, to 90 d, is {said}"
        ):
            await root.CreateToken(request)
    assert await refusal(root.SetUser(pb2.SetUserRequest())) == invalid
    for reserved in ("default", "service"):
        named = pb2.SetUserRequest(user=User(user_id=reserved, role=ROLE_ADMIN))
        assert await refusal(root.SetUser(named)) == invalid
    for place in ((-(2**62), ""), (PARTITIONS, "")):
        listing = root.ListUsers(pb2.ListUsersRequest(page_token=page_token(place)), timeout=10)
        assert await refusal(listing) == invalid
    assert await refusal(root.Authorize(pb2.AuthorizeRequest(digest="x"))) == invalid
    missing = await refusal(root.CreateToken(pb2.CreateTokenRequest(user_id="ann")))
    assert missing == (grpc.StatusCode.NOT_FOUND, "USER_NOT_FOUND")
    await calls.token("ann", ROLE_USER)
    other = await refusal(root.CreateToken(pb2.CreateTokenRequest(user_id="ann", role=ROLE_ADMIN)))
    assert other == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATUS")


async def test_calls_are_admitted_up_to_the_limit(calls: Calls) -> None:
    request = pb2.AdmitCallRequest(user_id="ann", endpoint="RunFlow", limit="2/d", calls=2)
    assert not (await calls.root.AdmitCall(request)).HasField("retry_after")
    assert 86_000 < (await calls.root.AdmitCall(request)).retry_after.seconds <= 86_400
    request.limit = "often"
    assert await refusal(calls.root.AdmitCall(request)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_quota_is_reserved_and_refunded_for_the_users_day(start: Start) -> None:
    calls = await start(quotas="RunFlow=3,SubmitTask=7")
    ann = calls.of(await calls.token("ann", ROLE_USER))
    root = calls.root
    zone = zone_far_from_midnight()
    await root.SetUser(pb2.SetUserRequest(user=User(user_id="ann", role=ROLE_USER, time_zone=zone)))
    await calls.set_role("ann", ROLE_USER)
    request = pb2.ReserveCallsRequest(user_id="ann", endpoint="RunFlow", quota=3, calls=3)
    reserved = await root.ReserveCalls(request)
    assert not reserved.HasField("retry_after")
    assert reserved.time_zone == zone
    refused = await root.ReserveCalls(request)
    assert 0 < refused.retry_after.ToMilliseconds() <= 86_400_000
    await root.RefundCalls(pb2.RefundCallsRequest(user_id="ann", endpoint="RunFlow", date=reserved.date, calls=2))
    run, submit = (await ann.ListQuotas(pb2.ListQuotasRequest())).quotas
    assert (run.endpoint, run.used, run.most, run.date) == ("RunFlow", 1, 3, reserved.date)
    assert (submit.endpoint, submit.used, submit.most) == ("SubmitTask", 0, 7)
    midnight = run.resets_at.ToDatetime(UTC).astimezone(ZoneInfo(zone))
    assert midnight.timetz().replace(tzinfo=None) == time(0)
    assert (await root.ListUsers(pb2.ListUsersRequest())).users[0].time_zone == zone


async def test_quotas_are_shown_to_their_user_and_to_servers(start: Start) -> None:
    calls = await start(quotas="RunFlow=3")
    ann = calls.of(await calls.token("ann", ROLE_USER))
    await calls.token("pool", ROLE_WORKER)
    assert (await calls.root.ListQuotas(pb2.ListQuotasRequest(user_id="ann"))).quotas[0].time_zone == "UTC"
    assert not (await calls.root.ListQuotas(pb2.ListQuotasRequest(user_id="pool"))).quotas
    other = await refusal(ann.ListQuotas(pb2.ListQuotasRequest(user_id="bob")))
    assert other == (grpc.StatusCode.PERMISSION_DENIED, "NOT_OWNER")
    missing = await refusal(calls.root.ListQuotas(pb2.ListQuotasRequest(user_id="bob")))
    assert missing == (grpc.StatusCode.NOT_FOUND, "USER_NOT_FOUND")
    small = await refusal(ann.ReserveCalls(pb2.ReserveCallsRequest(user_id="ann", endpoint="RunFlow", quota=9)))
    assert small == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_SMALL")


async def test_invalid_quotas_and_time_zones_are_refused(calls: Calls) -> None:
    invalid = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    root = calls.root
    nowhere = User(user_id="ann", role=ROLE_USER, time_zone="Mars/Olympus")
    assert await refusal(root.SetUser(pb2.SetUserRequest(user=nowhere))) == invalid
    assert await refusal(root.ReserveCalls(pb2.ReserveCallsRequest(user_id="ann", endpoint="RunFlow"))) == invalid
    undated = pb2.RefundCallsRequest(user_id="ann", endpoint="RunFlow", date="today")
    assert await refusal(root.RefundCalls(undated)) == invalid


async def test_changes_reach_gates_of_other_replicas_at_once(start: Start, embedded: RedisServer) -> None:
    """Two replicas of access, and a gate elsewhere that would otherwise remember for a minute."""
    first, second = await start(), await start()
    token = await first.token("ann", ROLE_ADMIN)
    channel = with_token(open_channel(second.address, traced=False), SECRET)
    gate = Gate(RemoteAuthority(channel), cache_s=60)
    gate.start()
    try:
        await until(lambda: _knows(gate, token), "the gate knows the token")
        await first.set_role("ann", ROLE_WORKER)
        await until(lambda: _role(gate, token, Role.WORKER), "the gate has the new role")
        await first.root.RevokeSessions(pb2.RevokeSessionsRequest(user_id="ann"))
        await until(lambda: _revoked(gate, token), "the gate refuses the token")
        await first.set_role("ann", ROLE_USER)
        old = await first.token("ann", ROLE_USER)
        await until(lambda: _knows(gate, old), "the gate knows the second token")
        new = (await first.of(old).RefreshSession(pb2.RefreshSessionRequest())).token
        await until(lambda: _revoked(gate, old), "the gate refuses the replaced token")
        await until(lambda: _knows(gate, new), "the gate knows the token in its place")
        await embedded.connect().delete(Keys().user("ann"))
        async for _ in first.root.RunDoctor(RunDoctorRequest(mend=True)):
            pass
        await until(lambda: _revoked(gate, new), "the gate refuses the token of a user whose record was lost")
    finally:
        await gate.stop()
        await embedded.close_clients()


async def _caller(gate: Gate, token: str) -> Identity:
    identity, _ = await call(gate, "/tradewind.api.access.v1.AccessService/WhoAmI", object(), token)
    assert identity is not None
    return identity


async def _knows(gate: Gate, token: str) -> bool:
    try:
        await _caller(gate, token)
    except Unavailable:
        return False
    return True


async def _role(gate: Gate, token: str, role: Role) -> bool:
    return (await _caller(gate, token)).role is role


async def _revoked(gate: Gate, token: str) -> bool:
    try:
        await _caller(gate, token)
    except Unauthenticated:
        return True
    return False


@pytest.mark.parametrize(("option", "value"), [("min-replicas-to-write", "1"), ("maxmemory", "1mb")])
async def test_known_users_can_still_read_while_the_store_refuses_writes(
    start: Start, embedded: RedisServer, option: str, value: str
) -> None:
    """Authorizing a token is a write, because its use is noted."""
    calls = await start(access_cache_seconds=0)
    ann = calls.of(await calls.token("ann", ROLE_USER))
    await ann.WhoAmI(pb2.WhoAmIRequest())
    [node] = embedded.nodes
    await embedded.on_node(node, "CONFIG", "SET", option, value)
    try:
        assert (await ann.WhoAmI(pb2.WhoAmIRequest())).user_id == "ann"
        refused = await refusal(calls.root.SetUser(pb2.SetUserRequest(user=User(user_id="bob", role=ROLE_USER))))
        assert refused == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    finally:
        await embedded.on_node(node, "CONFIG", "SET", option, "0")
