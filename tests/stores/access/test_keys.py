"""The keys in Redis and their TTLs, under the service's own ACL user."""

import pytest
from redis.exceptions import NoPermissionError

from tests.no_writes import REFUSALS, refusing_writes
from tests.servers import RedisServer
from tests.stores.access.bench import DAY, HOUR, MINUTE, PREFIX, digest, redis_bench
from tradewind.access.domain.day import KEPT_MS, day_of
from tradewind.access.domain.session import REMEMBERED_MS, SessionDraft, SessionKind
from tradewind.access.ports import Authorized, Refusal
from tradewind.access.stores.keys import ACL, Keys
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import digest_of, new_token, session_id_of
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import partition_of

KEYS = Keys(PREFIX)


async def test_keys_of_a_session_expire_and_keys_of_its_user_stay(redis_server: RedisServer) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("a", idle=HOUR)
    at = partition_of("ann")
    session = KEYS.session(at, digest("a"))
    lasting = sorted([KEYS.user("ann"), KEYS.users(at)])
    assert await redis_server.keys() == sorted([session, KEYS.sessions("ann"), *lasting])
    assert await redis_server.keys_without_ttl() == lasting
    admin = redis_server.connect()
    assert HOUR < await admin.pttl(session) <= HOUR + REMEMBERED_MS
    assert DAY < await admin.pttl(KEYS.sessions("ann")) <= DAY + REMEMBERED_MS


async def test_counts_of_a_day_expire_after_its_end(redis_server: RedisServer) -> None:
    """However late in the day counting began, and even if the user moves to a time zone in which the day ends later."""
    bench = redis_bench(redis_server, ManualClock())
    short = day_of("Europe/Berlin", bench.clock.now_ms())
    long = day_of("America/New_York", bench.clock.now_ms())
    assert short.date == long.date
    key = KEYS.quota("ann", short.date)
    admin = redis_server.connect()
    for day, kept in ((short, short), (long, long), (short, long)):
        await bench.users.set("ann", Role.USER, day.time_zone)
        assert await bench.quotas.reserve("ann", "RunFlow", day, 9)
        assert kept.left_ms < await admin.pttl(key) <= kept.left_ms + KEPT_MS
    assert await redis_server.keys() == sorted([key, KEYS.user("ann"), KEYS.users(partition_of("ann"))])


async def test_users_and_sessions_are_listed_while_the_store_takes_no_writes(redis_server: RedisServer) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("kept")
    await bench.open("lost")
    await redis_server.connect().delete(KEYS.session(partition_of("ann"), digest("lost")))
    async with refusing_writes(redis_server, "the store is out of memory and accepts no writes"):
        assert await bench.labels() == ["kept"]
        assert [user.user_id for user in await bench.users.list(partition_of("ann"), "", 10)] == ["ann"]
    await bench.open("new")
    assert await redis_server.connect().zcard(KEYS.sessions("ann")) == 2


@pytest.mark.parametrize("reason", [reason for reason in REFUSALS if "read-only" not in reason])
async def test_token_is_recognized_while_the_store_takes_no_writes(redis_server: RedisServer, reason: str) -> None:
    """Otherwise no operator could look what is wrong; only its use is not noted."""
    bench = redis_bench(redis_server, ManualClock())
    session, short = await bench.open("a"), await bench.open("b", lifetime=HOUR)
    for each in (session, short):
        await bench.sessions.authorize(each.digest)
    bench.clock.advance(HOUR)
    async with refusing_writes(redis_server, reason):
        assert await bench.sessions.authorize(session.digest) == Authorized(
            "ann", Role.USER, session_id_of(session.digest)
        )
        assert await bench.sessions.authorize(short.digest) is Refusal.EXPIRED
        assert await bench.sessions.authorize(digest("nobody's")) is Refusal.UNKNOWN
        (listed,) = await bench.sessions.list("ann")
        assert listed.last_activity == session.created_at
    assert isinstance(await bench.sessions.authorize(session.digest), Authorized)
    (listed,) = await bench.sessions.list("ann")
    assert listed.last_activity == bench.clock.now_ms()


async def test_store_holds_no_tokens(redis_server: RedisServer) -> None:
    """Reading the store does not enable anyone to call."""
    bench = redis_bench(redis_server, ManualClock())
    token = new_token("ann")
    stored = digest_of(token) or ""
    await bench.sessions.open(stored, SessionDraft("ann", SessionKind.TOKEN, DAY), Role.USER)
    admin = redis_server.connect()
    session = await admin.hgetall(KEYS.session(partition_of("ann"), stored))
    listed = await admin.zrange(KEYS.sessions("ann"), 0, -1)
    text = repr([await redis_server.keys(), session, listed])
    assert stored in text
    assert token not in text


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, None) for name in ("digest", "user_id", "kind", "lifetime", "idle", "label", "created_at", "last_activity")]
    + [("kind", "x"), ("lifetime", "1e300"), ("idle", ""), ("created_at", "nan"), ("last_activity", "0.5")],
)
async def test_broken_record_of_a_session_is_none_and_keeps_nobody_from_the_others(
    redis_server: RedisServer, name: str, value: str | None
) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("broken")
    await bench.open("whole")
    key, admin = KEYS.session(partition_of("ann"), digest("broken")), redis_server.connect()
    if value is None:
        await admin.execute_command("HDEL", key, name)
    else:
        await admin.hset(key, mapping={name: value})
    for refused in (
        bench.sessions.authorize(digest("broken")),
        bench.sessions.replace(digest("broken"), digest("new")),
    ):
        assert await refused is Refusal.UNKNOWN
    assert await bench.labels() == ["whole"]
    await bench.open("next")
    assert await bench.sessions.close_all("ann") == 2
    assert await bench.sessions.authorize(digest("whole")) is Refusal.UNKNOWN


async def test_use_under_an_earlier_clock_does_not_end_a_session_sooner(redis_server: RedisServer) -> None:
    """As after a failover to a store whose clock is behind, and back."""
    bench = redis_bench(redis_server, ManualClock())
    behind = redis_bench(redis_server, ManualClock(bench.clock.now_ms() - 50 * MINUTE))
    await bench.open("a", idle=HOUR)
    assert isinstance(await behind.sessions.authorize(digest("a")), Authorized)
    bench.clock.advance(30 * MINUTE)
    assert isinstance(await bench.sessions.authorize(digest("a")), Authorized)


async def test_key_of_another_kind_is_no_session(redis_server: RedisServer) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("broken")
    await bench.open("whole")
    key, admin = KEYS.session(partition_of("ann"), digest("broken")), redis_server.connect()
    await admin.delete(key)
    await admin.set(key, "x", px=HOUR)
    assert await bench.sessions.authorize(digest("broken")) is Refusal.UNKNOWN
    assert await bench.labels() == ["whole"]


async def test_user_with_a_broken_record_keeps_nobody_from_the_list_of_users(redis_server: RedisServer) -> None:
    """Whether anybody is an admin, which a stack asks when it starts, is read from this list."""
    bench = redis_bench(redis_server, ManualClock())
    at = partition_of("ann")
    others = [name for name in map(str, range(10_000)) if partition_of(name) == at][:2]
    for user_id in ("ann", *others):
        await bench.users.set(user_id, Role.ADMIN)
    admin = redis_server.connect()
    await admin.execute_command("HDEL", KEYS.user("ann"), "updated_at")
    await admin.hset(KEYS.user(others[0]), mapping={"updated_at": "yesterday"})
    await admin.delete(KEYS.user(others[1]))
    await admin.set(KEYS.user(others[1]), "x")
    listed = await bench.users.list(at, "", 10)
    assert [(each.user_id, each.updated_at) for each in listed] == [(others[0], 0), ("ann", 0)]
    assert await bench.users.find(others[0]) == listed[0]


async def test_bytes_that_are_no_text_keep_nobody_from_being_read(redis_server: RedisServer) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("whole")
    at, admin, noise = partition_of("ann"), redis_server.connect(), b"\xff\xfe["
    other = next(name for name in map(str, range(10_000)) if partition_of(name) == at)
    await bench.users.set("ann", Role.USER, "Europe/Paris")
    await bench.users.set(other, Role.USER)
    await admin.hset(KEYS.user("ann"), mapping={"time_zone": noise})
    await admin.hset(KEYS.session(at, digest("whole")), mapping={"label": noise})
    found = await bench.users.find("ann")
    assert found is not None
    assert found.time_zone == "??["
    assert sorted(each.user_id for each in await bench.users.list(at, "", 10)) == sorted([other, "ann"])
    assert await bench.labels() == ["??["]
    assert isinstance(await bench.sessions.authorize(digest("whole")), Authorized)
    await admin.hset(KEYS.user("ann"), mapping={"role": noise})
    assert await bench.users.find("ann") is None
    assert await bench.sessions.authorize(digest("whole")) is Refusal.UNKNOWN
    assert [each.user_id for each in await bench.users.list(at, "", 10)] == [other]


async def replaced(server: RedisServer, key: str) -> None:
    """Put a key of another type in place of a record."""
    await server.connect().delete(key)
    await server.connect().set(key, "x")


async def test_key_of_another_type_in_place_of_a_user_is_nobody_until_the_role_is_set_again(
    redis_server: RedisServer,
) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("a")
    await replaced(redis_server, KEYS.user("ann"))
    assert await bench.sessions.authorize(digest("a")) is Refusal.UNKNOWN
    with pytest.raises(Unreadable, match="user:ann cannot be read"):
        await bench.users.find("ann")
    await bench.users.set("ann", Role.USER)
    assert isinstance(await bench.sessions.authorize(digest("a")), Authorized)


async def test_key_of_another_type_in_place_of_a_list_of_sessions_is_replaced_when_one_is_used(
    redis_server: RedisServer,
) -> None:
    bench = redis_bench(redis_server, ManualClock())
    await bench.open("a")
    await replaced(redis_server, KEYS.sessions("ann"))
    assert await bench.labels() == []
    assert await bench.sessions.close_all("ann") == 0
    assert isinstance(await bench.sessions.authorize(digest("a")), Authorized)
    assert await bench.labels() == ["a"]


@pytest.mark.parametrize("foreign", ["trading_flow:{registry}:workers:w", "trading_flow:{s0}:users", "else:{a1}:users"])
async def test_access_user_cannot_touch_foreign_keys(redis_server: RedisServer, foreign: str) -> None:
    client = redis_server.connect(ACL.name)
    with pytest.raises(NoPermissionError):
        await client.get(foreign)
    with pytest.raises(NoPermissionError):
        await client.eval("return redis.call('GET', KEYS[1])", 1, foreign)
