"""Every sentence of the stores' contracts, for every store."""

from tests.stores.access.bench import DAY, HOUR, MINUTE, Bench, digest
from tests.waiting import until
from tradewind.access.domain.session import MAX_SESSIONS, REMEMBERED_MS, SessionDraft, SessionKind, User
from tradewind.access.ports import Authorized, Refusal
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import session_id_of

ANN = SessionDraft("ann", SessionKind.TOKEN, DAY)


async def test_token_authorizes_its_user_with_the_current_role(bench: Bench) -> None:
    session = await bench.open("laptop")
    assert session.created_at == session.last_activity == bench.clock.now_ms()
    assert session.expires_at == bench.clock.now_ms() + DAY
    name = session_id_of(session.digest)
    assert await bench.sessions.authorize(session.digest) == Authorized("ann", Role.USER, name)
    await bench.users.set("ann", Role.OPERATOR)
    assert await bench.sessions.authorize(session.digest) == Authorized("ann", Role.OPERATOR, name)


async def test_user_is_created_with_a_role_and_keeps_it(bench: Bench) -> None:
    assert await bench.sessions.open(digest("a"), ANN) is Refusal.UNKNOWN_USER
    assert await bench.users.find("ann") is None
    await bench.open("a")
    assert await bench.users.find("ann") == User("ann", Role.USER, bench.clock.now_ms())
    assert await bench.sessions.open(digest("b"), ANN, Role.ADMIN) is Refusal.OTHER_ROLE
    assert not isinstance(await bench.sessions.open(digest("b"), ANN), Refusal)
    assert await bench.sessions.authorize(digest("unknown")) is Refusal.UNKNOWN


async def test_idle_session_ends_and_use_renews_it_only_within_its_lifetime(bench: Bench) -> None:
    session = await bench.open("a", idle=HOUR, lifetime=3 * HOUR)
    for _ in range(3):
        bench.clock.advance(HOUR - 1)
        assert isinstance(await bench.sessions.authorize(session.digest), Authorized)
    (now,) = await bench.sessions.list("ann")
    assert now.last_activity == bench.clock.now_ms()
    assert now.expires_at == session.ends_at
    bench.clock.advance(3)
    assert await bench.sessions.authorize(session.digest) is Refusal.EXPIRED
    assert await bench.sessions.list("ann") == []

    idle = await bench.open("b", idle=HOUR)
    bench.clock.advance(HOUR)
    assert await bench.sessions.authorize(idle.digest) is Refusal.EXPIRED
    bench.clock.advance(REMEMBERED_MS)
    assert await bench.sessions.authorize(idle.digest) is Refusal.UNKNOWN


async def test_sessions_are_listed_and_closed_one_by_one_or_all(bench: Bench) -> None:
    for name in ("a", "b", "c", "d"):
        await bench.open(name)
        bench.clock.advance(MINUTE)
    await bench.open("bob's", "bob")
    assert await bench.labels() == ["d", "c", "b", "a"]

    name = session_id_of(digest("b"))
    assert not await bench.sessions.close("bob", name)
    assert await bench.sessions.close("ann", name)
    assert not await bench.sessions.close("ann", name)
    assert await bench.sessions.authorize(digest("b")) is Refusal.UNKNOWN
    assert await bench.sessions.close_all("ann", session_id_of(digest("a"))) == 2
    assert await bench.labels() == ["a"]
    assert await bench.sessions.close_all("ann") == 1
    assert await bench.labels("bob") == ["bob's"]


async def test_replaced_token_is_no_longer_valid(bench: Bench) -> None:
    before = await bench.open("a", idle=HOUR)
    bench.clock.advance(MINUTE)
    after = await bench.sessions.replace(before.digest, digest("new"))
    assert not isinstance(after, Refusal)
    assert (after.draft, after.created_at) == (before.draft, bench.clock.now_ms())
    assert await bench.sessions.authorize(before.digest) is Refusal.UNKNOWN
    assert isinstance(await bench.sessions.authorize(digest("new")), Authorized)
    assert await bench.sessions.replace(before.digest, digest("newer")) is Refusal.UNKNOWN
    bench.clock.advance(HOUR)
    assert await bench.sessions.replace(digest("new"), digest("newer")) is Refusal.EXPIRED


async def test_number_of_open_sessions_of_a_user_is_limited(bench: Bench) -> None:
    for number in range(MAX_SESSIONS):
        await bench.open(f"{number}", lifetime=HOUR)
    assert await bench.sessions.open(digest("more"), ANN) is Refusal.TOO_MANY
    bench.clock.advance(HOUR)
    assert not isinstance(await bench.sessions.open(digest("more"), ANN), Refusal)


async def test_number_of_remembered_expired_sessions_is_limited(bench: Bench) -> None:
    """However many short-lived tokens someone makes, one after the other."""
    for number in range(MAX_SESSIONS + 2):
        await bench.open(f"{number}", lifetime=1)
        bench.clock.advance(1)
    remembered = [await bench.sessions.authorize(digest(f"{number}")) for number in range(MAX_SESSIONS + 2)]
    assert remembered == [Refusal.UNKNOWN, *[Refusal.EXPIRED] * (MAX_SESSIONS + 1)]


async def test_users_are_listed_by_partition_and_id(bench: Bench) -> None:
    names = [f"user-{number}" for number in range(40)]
    for name in names:
        await bench.users.set(name, Role.USER)
    found = []
    for partition in range(16):
        after = ""
        while some := await bench.users.list(partition, after, 2):
            assert len(some) <= 2
            found += [user.user_id for user in some]
            after = found[-1]
    assert sorted(found) == sorted(names)


async def test_changes_of_a_user_are_published(bench: Bench) -> None:
    """Only this test's own users count: in a cluster, messages about others may still arrive from earlier tests."""
    changed: list[str] = []
    end = await bench.changes.subscribe(changed.append, lambda: None)
    await bench.open("a", "una")
    await bench.open("b", "una")
    await bench.open("c", "udo")
    await bench.users.set("uwe", Role.ADMIN)
    await bench.sessions.close("una", session_id_of(digest("a", "una")))
    await until(lambda: sorted({"udo", "una", "uwe"} & set(changed)) == ["una", "uwe"], "both were published")
    end()
