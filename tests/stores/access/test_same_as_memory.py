"""The same random operations run on memory and Redis, which must always answer alike."""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.access.bench import HOUR, LASTING_KEYS, MINUTE, PREFIX, Bench, digest, memory_bench, redis_bench
from tests.stores.machines import TwinStores, run_histories, together
from tradewind.access.domain.day import day_of
from tradewind.access.domain.session import REMEMBERED_MS, SessionDraft, SessionKind
from tradewind.access.stores.keys import Keys
from tradewind.access.stores.redis import RedisAccess
from tradewind.access.stores.redis_doctor import RedisAccessExaminer
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import session_id_of
from tradewind.server.partitions import partition_of
from tradewind.server.rates import Rate

# Few names, so that the same ones come up repeatedly.
users = st.sampled_from(["ann", "bob"])
names = st.sampled_from(["a", "b", "c", "d"])
roles = st.sampled_from([None, Role.USER, Role.WORKER, Role.ADMIN])
endpoints = st.sampled_from(["RunFlow", "SubmitTask"])
zones = st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York"])
spans = st.sampled_from([1, MINUTE, 30 * MINUTE, HOUR - 1, HOUR, REMEMBERED_MS, 3 * HOUR])
drafts = st.tuples(st.sampled_from(list(SessionKind)), st.sampled_from([HOUR, 2 * HOUR]), st.sampled_from([0, MINUTE]))


class Twins(TwinStores[Bench]):
    """Memory and one Redis under one clock."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.used: set[str] = set()
        self.days: set[str] = set()
        self.memory, self.redis = memory_bench(self.clock), redis_bench(server, self.clock)

    def teardown(self) -> None:
        self.run(self.healthy())
        super().teardown()

    async def at_the_end(self) -> None:
        await assert_no_leaked_keys(self.server, LASTING_KEYS)

    async def healthy(self) -> None:
        """Check that a doctor finds nothing, whatever has happened."""
        examine = RedisAccessExaminer(RedisAccess(self.server.connect("access"), Keys(PREFIX), self.clock), self.clock)
        at = "0:"
        while at:
            examined = await examine(at, 100, None, False)
            assert examined.findings == ()
            at = examined.at

    def fresh(self, user_id: str) -> str:
        """Return a digest that has never been used: tokens are random, so none comes twice."""
        made = digest(f"fresh {len(self.used)}", user_id)
        self.used.add(made)
        return made

    @rule(user_id=users, draft=drafts, role=roles, name=names)
    def open(self, user_id: str, draft: tuple[SessionKind, int, int], role: Role | None, name: str) -> None:
        made = digest(name, user_id)
        if made in self.used:
            made = self.fresh(user_id)
        self.used.add(made)
        self.both(lambda bench: bench.sessions.open(made, SessionDraft(user_id, *draft, name), role))

    @rule(user_id=users, name=names)
    def replace(self, user_id: str, name: str) -> None:
        made = self.fresh(user_id)
        self.both(lambda bench: bench.sessions.replace(digest(name, user_id), made))

    @rule(user_id=users, name=names)
    def authorize(self, user_id: str, name: str) -> None:
        self.both(lambda bench: bench.sessions.authorize(digest(name, user_id)))

    @rule(user_id=users, name=names, everything=st.booleans())
    def close(self, user_id: str, name: str, everything: bool) -> None:
        begins = session_id_of(digest(name, user_id))
        if everything:
            self.both(lambda bench: bench.sessions.close_all(user_id, begins))
        else:
            self.both(lambda bench: bench.sessions.close(user_id, begins))

    @rule(user_id=users, role=st.sampled_from([Role.USER, Role.ADMIN]), zone=st.one_of(st.just(""), zones))
    def set_user(self, user_id: str, role: Role, zone: str) -> None:
        self.both(lambda bench: bench.users.set(user_id, role, zone))

    @rule(
        user_id=users,
        endpoint=endpoints,
        zone=st.one_of(st.none(), zones),
        calls=st.integers(1, 3),
        limit=st.integers(1, 5),
        rate=st.sampled_from([None, Rate(3, MINUTE)]),
    )
    def reserve(self, user_id: str, endpoint: str, zone: str | None, calls: int, limit: int, rate: Rate | None) -> None:
        """Reserve for a day in the user's time zone, or in one where the user may be."""
        user = self.run(self.memory.users.find(user_id))
        day = day_of(zone or (user.time_zone if user else "UTC"), self.clock.now_ms())
        self.days.add(day.date)
        self.both(lambda bench: bench.quotas.reserve(user_id, endpoint, day, limit, calls, rate))

    @rule(user_id=users, endpoint=endpoints, calls=st.integers(1, 3), place=st.integers(0, 5))
    def refund(self, user_id: str, endpoint: str, calls: int, place: int) -> None:
        days = sorted(self.days) or ["2023-11-14"]
        date = days[place % len(days)]
        self.both(lambda bench: bench.quotas.refund(user_id, endpoint, date, calls))

    @rule(user_id=users, endpoint=endpoints, calls=st.integers(1, 4))
    def admit(self, user_id: str, endpoint: str, calls: int) -> None:
        self.both(lambda bench: bench.calls.admit(user_id, endpoint, Rate(3, MINUTE), calls))

    @rule(span=spans)
    def advance(self, span: int) -> None:
        self.clock.advance(span)

    @invariant()
    def they_hold_the_same(self) -> None:
        self.both(lambda bench: together(*(_all_of(user_id, self.days, bench) for user_id in ("ann", "bob"))))


async def _all_of(user_id: str, days: Iterable[str], bench: Bench) -> list[Any]:
    return await together(
        bench.users.list(partition_of(user_id), "", 5),
        bench.sessions.list(user_id),
        bench.users.find(user_id),
        *(bench.quotas.used(user_id, date) for date in days),
    )


def test_memory_and_redis_answer_alike(running_redis: RedisServer) -> None:
    run_histories(Twins, running_redis, 25)
