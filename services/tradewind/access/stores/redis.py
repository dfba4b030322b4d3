"""Users and sessions in Redis: one script for each change, and for each read that needs the server's time."""

from collections.abc import Callable, Mapping, Sequence

import structlog

from tradewind.access.domain.day import KEPT_MS, Day
from tradewind.access.domain.session import MAX_SESSIONS, REMEMBERED_MS, Session, SessionDraft, SessionKind, User
from tradewind.access.ports import Authorized, Refusal, Reserved
from tradewind.access.stores.keys import Keys
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import partition_in, session_id_of
from tradewind.server.faults import Unavailable, Unreadable
from tradewind.server.incidents import IncidentLog
from tradewind.server.partitions import partition_of
from tradewind.server.rates import Rate
from tradewind.server.redis.client import Client
from tradewind.server.redis.connections import WRITE_REFUSALS
from tradewind.server.redis.outages import outage_as_fault
from tradewind.server.redis.records import read_each
from tradewind.server.redis.script import Reply, Script
from tradewind.server.redis.subscriber import Subscriber

_log = structlog.get_logger(__name__)

ROLES = tuple(role for role in Role if role is not Role.SERVICE)
"""The roles of users on record; a user with any other role counts as unknown until an admin sets the role."""
_Row = tuple[str, str, str, int, int, str, int, int]

_OPEN = Script(__name__, "open_session", tuple[str, _Row])
_REPLACE = Script(__name__, "replace_session", tuple[str, _Row])
_AUTHORIZE = Script(__name__, "authorize", tuple[str, str, str])
_RECOGNIZE = Script(__name__, "recognize", tuple[str, str, str])
_CLOSE = Script(__name__, "close_sessions", int)
_LIST = Script(__name__, "list_sessions", list[_Row])
_SET_USER = Script(__name__, "set_user", tuple[int, str])
_ADMIT = Script(__name__, "admit", int)
_RESERVE = Script(__name__, "reserve_calls", tuple[str, bool, int])
_REFUND = Script(__name__, "refund_calls", bool)
_LIST_USERS = Script(__name__, "list_users", list[tuple[str, str, int, str]])


class RedisAccess:
    """The stores of the access service; `clock` returns epoch ms, or 0 for the server's time.

    While Redis is away they raise Unavailable.
    """

    def __init__(
        self, client: Client, keys: Keys, clock: Callable[[], int], subscriber: Subscriber | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self.keys = keys
        self._away = IncidentLog(_log, "store_unavailable", "store_available_again")
        self.sessions = RedisSessions(self)
        self.users = RedisUsers(self)
        self.calls = RedisCallCounts(self)
        self.quotas = RedisQuotaCounts(self)
        self.changes = RedisChanges(keys, subscriber)

    async def run(self, script: Script[Reply], partition: int, keys: Sequence[str], **args: object) -> Reply:
        """Run a script with its own args and those that all scripts take."""
        shared = {
            "now_ms": self._clock(),
            "base": self.keys.base(partition),
            "channel": self.keys.changes(),
            "remembered_ms": REMEMBERED_MS,
        }
        with outage_as_fault(self._away):
            return await script(self._client, keys, shared | args)

    async def read(self, key: str) -> list[bytes | None]:
        """Read role, time of change and time zone of a user. Raises Unreadable."""
        with outage_as_fault(self._away):
            (found,) = await read_each(self._client, [key], "HMGET", "role", "updated_at", "time_zone")
        if isinstance(found, Unreadable):
            raise found
        fields: list[bytes | None] = found
        return fields

    async def read_counts(self, key: str) -> dict[bytes, bytes]:
        """Read the counts of a user's day."""
        with outage_as_fault(self._away):
            return await self._client.hgetall(key)


class RedisSessions:
    """Implements SessionStore."""

    def __init__(self, access: RedisAccess) -> None:
        self._access = access

    async def open(self, digest: str, draft: SessionDraft, role: Role | None = None) -> Session | Refusal:
        row = (digest, draft.user_id, draft.kind, draft.lifetime_ms, draft.idle_ms, draft.label, 0, 0)
        refusal, made = await self._access.run(
            _OPEN,
            partition_in(digest),
            [self._access.keys.user(draft.user_id)],
            row=row,
            role=role or "",
            max_sessions=MAX_SESSIONS,
        )
        return Refusal(refusal) if refusal else _session(made)

    async def replace(self, old: str, new: str) -> Session | Refusal:
        partition = partition_in(old)
        keys = [self._access.keys.session(partition, digest) for digest in (old, new)]
        refusal, made = await self._access.run(_REPLACE, partition, keys, old=old, new=new)
        return Refusal(refusal) if refusal else _session(made)

    async def authorize(self, digest: str) -> Authorized | Refusal:
        partition = partition_in(digest)
        key = self._access.keys.session(partition, digest)
        try:
            refusal, user_id, role = await self._access.run(_AUTHORIZE, partition, [key], digest=digest)
        except Unavailable as error:
            if not isinstance(error.__cause__, WRITE_REFUSALS):
                raise
            # Whoever may not look cannot find out what fills the store.
            refusal, user_id, role = await self._access.run(_RECOGNIZE, partition, [key], digest=digest)
        if refusal or role not in ROLES:
            return Refusal(refusal or Refusal.UNKNOWN)
        return Authorized(user_id, Role(role), session_id_of(digest))

    async def close(self, user_id: str, session_id: str) -> bool:
        return await self._close(user_id, session_id, "") > 0

    async def close_all(self, user_id: str, keep: str = "") -> int:
        return await self._close(user_id, "", keep)

    async def _close(self, user_id: str, name: str, keep: str) -> int:
        keys = [self._access.keys.sessions(user_id)]
        return await self._access.run(_CLOSE, partition_of(user_id), keys, user_id=user_id, name=name, keep=keep)

    async def list(self, user_id: str) -> Sequence[Session]:
        keys = [self._access.keys.sessions(user_id)]
        rows = await self._access.run(_LIST, partition_of(user_id), keys, user_id=user_id)
        return [_session(row) for row in reversed(rows)]


class RedisUsers:
    """Implements UserStore."""

    def __init__(self, access: RedisAccess) -> None:
        self._access = access

    async def set(self, user_id: str, role: Role, time_zone: str = "") -> User:
        partition = partition_of(user_id)
        keys = [self._access.keys.user(user_id), self._access.keys.users(partition)]
        time, zone = await self._access.run(_SET_USER, partition, keys, user_id=user_id, role=role, time_zone=time_zone)
        return User(user_id, role, time, zone or "UTC")

    async def find(self, user_id: str) -> User | None:
        role, updated_at, zone = await self._access.read(self._access.keys.user(user_id))
        if _text(role) not in ROLES:
            return None
        at_ms = int(updated_at) if updated_at and updated_at.isdigit() else 0
        return User(user_id, Role(_text(role)), at_ms, _text(zone) or "UTC")

    async def list(self, partition: int, after: str, limit: int) -> Sequence[User]:
        keys = [self._access.keys.users(partition)]
        rows = await self._access.run(_LIST_USERS, partition, keys, after=after, limit=limit, roles=ROLES)
        return [User(user_id, Role(role), updated_at, zone or "UTC") for user_id, role, updated_at, zone in rows]


class RedisCallCounts:
    """Implements CallCounts."""

    def __init__(self, access: RedisAccess) -> None:
        self._access = access

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int = 1) -> int:
        keys = [self._access.keys.rate_limit(user_id, endpoint)]
        return await self._access.run(
            _ADMIT, partition_of(user_id), keys, count=rate.count, period_ms=rate.period_ms, calls=calls
        )


class RedisQuotaCounts:
    """Implements QuotaCounts."""

    def __init__(self, access: RedisAccess) -> None:
        self._access = access

    async def reserve(
        self, user_id: str, endpoint: str, day: Day, limit: int, calls: int = 1, rate: Rate | None = None
    ) -> Reserved:
        keys = self._access.keys
        found = await self._access.run(
            _RESERVE,
            partition_of(user_id),
            [keys.user(user_id), keys.quota(user_id, day.date), keys.rate_limit(user_id, endpoint)],
            time_zone=day.time_zone,
            endpoint=endpoint,
            limit=limit,
            calls=calls,
            kept_ms=day.left_ms + KEPT_MS,
            rate=None if rate is None else (rate.count, rate.period_ms),
        )
        return Reserved(*found)

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int = 1) -> None:
        keys = [self._access.keys.quota(user_id, date)]
        await self._access.run(_REFUND, partition_of(user_id), keys, endpoint=endpoint, calls=calls)

    async def used(self, user_id: str, date: str) -> Mapping[str, int]:
        counts = await self._access.read_counts(self._access.keys.quota(user_id, date))
        return {endpoint.decode(): int(count) for endpoint, count in counts.items()}


class RedisChanges:
    """Implements Changes: pub/sub, one connection for all subscriptions."""

    def __init__(self, keys: Keys, subscriber: Subscriber | None) -> None:
        self._keys = keys
        self._subscriber = subscriber

    async def subscribe(self, on_change: Callable[[str], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        assert self._subscriber is not None
        return await self._subscriber.subscribe(
            self._keys.changes(), lambda _, message: on_change(message.decode()), on_gap
        )


def _text(raw: bytes | None) -> str:
    """Return a field as text, as the scripts do where somebody has put other bytes there."""
    return (raw or b"").decode(errors="replace").replace("\ufffd", "?")


def _session(row: _Row) -> Session:
    digest, user_id, kind, lifetime_ms, idle_ms, label, created_at, last_activity = row
    return Session(
        digest, SessionDraft(user_id, SessionKind(kind), lifetime_ms, idle_ms, label), created_at, last_activity
    )
