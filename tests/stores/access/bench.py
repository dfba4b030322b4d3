"""The stores of the access service, in memory and in Redis."""

from dataclasses import dataclass

from tests.servers import RedisServer
from tradewind.access.domain.session import Session, SessionDraft, SessionKind
from tradewind.access.ports import CallCounts, Changes, QuotaCounts, SessionStore, UserStore
from tradewind.access.stores.keys import Keys
from tradewind.access.stores.memory import MemoryAccess
from tradewind.access.stores.redis import RedisAccess
from tradewind.server.access.roles import Role
from tradewind.server.clock import ManualClock
from tradewind.server.partitions import partition_of
from tradewind.server.redis.subscriber import Subscriber

PREFIX = "trading_flow"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LASTING_KEYS = (f"{PREFIX}:{{a*}}:user:*", f"{PREFIX}:{{a*}}:users")


@dataclass
class Bench:
    """Users and sessions, under a clock that tests move."""

    sessions: SessionStore
    users: UserStore
    calls: CallCounts
    quotas: QuotaCounts
    changes: Changes
    clock: ManualClock

    async def open(self, name: str, user_id: str = "ann", *, idle: int = 0, lifetime: int = DAY) -> Session:
        """Record a session, and the user if need be, and expect success."""
        draft = SessionDraft(user_id, SessionKind.LOGIN if idle else SessionKind.TOKEN, lifetime, idle, name)
        made = await self.sessions.open(digest(name, user_id), draft, Role.USER)
        assert isinstance(made, Session), made
        return made

    async def labels(self, user_id: str = "ann") -> list[str]:
        """Return the labels of the sessions listed."""
        return [each.draft.label for each in await self.sessions.list(user_id)]


def memory_bench(clock: ManualClock) -> Bench:
    """In memory."""
    access = MemoryAccess(clock)
    return Bench(access.sessions, access.users, access.calls, access.quotas, access.changes, clock)


def redis_bench(server: RedisServer, clock: ManualClock, subscriber: Subscriber | None = None) -> Bench:
    """In Redis, logged in as the service."""
    access = RedisAccess(server.connect("access"), Keys(PREFIX), clock, subscriber)
    return Bench(access.sessions, access.users, access.calls, access.quotas, access.changes, clock)


def digest(name: str, user_id: str = "ann") -> str:
    """Return a digest in a user's partition, of a token that nobody knows."""
    return f"{partition_of(user_id):02x}" + name.encode().hex().ljust(64, "0")
