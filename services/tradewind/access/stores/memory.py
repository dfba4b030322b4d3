"""Users and sessions in memory: the executable specification of the stores, obvious rather than fast."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tradewind.access.domain.day import Day
from tradewind.access.domain.session import MAX_SESSIONS, REMEMBERED_MS, Session, SessionDraft, User
from tradewind.access.ports import Authorized, Refusal, Reserved
from tradewind.server.access.roles import Role
from tradewind.server.access.tokens import session_id_of
from tradewind.server.partitions import partition_of
from tradewind.server.rates import Rate


@dataclass(slots=True)
class MemoryAccess:
    """All records; `clock` returns epoch ms. Records are immutable, so they are handed out without copying."""

    clock: Callable[[], int]
    users_by_id: dict[str, User] = field(default_factory=dict)
    sessions_by_digest: dict[str, Session] = field(default_factory=dict)
    admitted: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    counted: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    @property
    def sessions(self) -> "MemorySessions":
        """The port for sessions."""
        return MemorySessions(self)

    @property
    def users(self) -> "MemoryUsers":
        """The port for users."""
        return MemoryUsers(self)

    @property
    def calls(self) -> "MemoryCallCounts":
        """The port for counted calls."""
        return MemoryCallCounts(self)

    @property
    def quotas(self) -> "MemoryQuotaCounts":
        """The port for calls counted by day."""
        return MemoryQuotaCounts(self)

    @property
    def changes(self) -> "MemoryChanges":
        """The port for news of changes."""
        return MemoryChanges(self)

    def session(self, digest: str) -> Session | Refusal:
        """Return a session that has not ended."""
        session = self.sessions_by_digest.get(digest)
        return Refusal.UNKNOWN if session is None else self.refusal(session) or session

    def refusal(self, session: Session) -> Refusal | None:
        """Return why a session is not valid, None when it is."""
        if session.expires_at + REMEMBERED_MS <= self.clock():
            return Refusal.UNKNOWN
        return Refusal.EXPIRED if session.expires_at <= self.clock() else None

    def open_sessions(self, user_id: str) -> list[Session]:
        """Return the sessions of a user that have not ended, oldest first."""
        return self._sessions_of(user_id, None)

    def ended_sessions(self, user_id: str) -> list[Session]:
        """Return the sessions of a user that have ended and are still remembered, oldest first."""
        return self._sessions_of(user_id, Refusal.EXPIRED)

    def _sessions_of(self, user_id: str, refusal: Refusal | None) -> list[Session]:
        of_user = (each for each in self.sessions_by_digest.values() if each.draft.user_id == user_id)
        found = [each for each in of_user if self.refusal(each) is refusal]
        return sorted(found, key=lambda each: (each.created_at, each.digest))

    def notify(self, user_id: str) -> None:
        """Notify all listeners that something about a user has changed."""
        for listener in list(self.listeners):
            listener(user_id)


@dataclass(frozen=True, slots=True)
class MemorySessions:
    """Implements SessionStore."""

    access: MemoryAccess

    async def open(self, digest: str, draft: SessionDraft, role: Role | None = None) -> Session | Refusal:
        access, now = self.access, self.access.clock()
        user = access.users_by_id.get(draft.user_id)
        if user is None and role is None:
            return Refusal.UNKNOWN_USER
        if user is not None and role not in (None, user.role):
            return Refusal.OTHER_ROLE
        if len(access.open_sessions(draft.user_id)) >= MAX_SESSIONS:
            return Refusal.TOO_MANY
        for ended in access.ended_sessions(draft.user_id)[:-MAX_SESSIONS]:
            del access.sessions_by_digest[ended.digest]
        if user is None and role is not None:
            access.users_by_id[draft.user_id] = User(draft.user_id, role, now)
        session = access.sessions_by_digest[digest] = Session(digest, draft, now, now)
        return session

    async def replace(self, old: str, new: str) -> Session | Refusal:
        session, now = self.access.session(old), self.access.clock()
        if isinstance(session, Refusal):
            return session
        del self.access.sessions_by_digest[old]
        made = self.access.sessions_by_digest[new] = Session(new, session.draft, now, now)
        self.access.notify(session.draft.user_id)
        return made

    async def authorize(self, digest: str) -> Authorized | Refusal:
        session, now = self.access.session(digest), self.access.clock()
        if isinstance(session, Refusal):
            return session
        self.access.sessions_by_digest[digest] = replace(session, last_activity=max(session.last_activity, now))
        user_id = session.draft.user_id
        return Authorized(user_id, self.access.users_by_id[user_id].role, session_id_of(digest))

    async def close(self, user_id: str, session_id: str) -> bool:
        return self._close(user_id, lambda name: name == session_id) > 0

    async def close_all(self, user_id: str, keep: str = "") -> int:
        return self._close(user_id, lambda name: name != keep)

    def _close(self, user_id: str, selected: Callable[[str], bool]) -> int:
        closed = [each for each in self.access.open_sessions(user_id) if selected(session_id_of(each.digest))]
        for each in closed:
            del self.access.sessions_by_digest[each.digest]
        if closed:
            self.access.notify(user_id)
        return len(closed)

    async def list(self, user_id: str) -> Sequence[Session]:
        return self.access.open_sessions(user_id)[::-1]


@dataclass(frozen=True, slots=True)
class MemoryUsers:
    """Implements UserStore."""

    access: MemoryAccess

    async def set(self, user_id: str, role: Role, time_zone: str = "") -> User:
        before = self.access.users_by_id.get(user_id, User(user_id, role))
        user = User(user_id, role, self.access.clock(), time_zone or before.time_zone)
        self.access.users_by_id[user_id] = user
        self.access.notify(user_id)
        return user

    async def find(self, user_id: str) -> User | None:
        return self.access.users_by_id.get(user_id)

    async def list(self, partition: int, after: str, limit: int) -> Sequence[User]:
        users = sorted(self.access.users_by_id.values(), key=lambda user: user.user_id)
        return [user for user in users if partition_of(user.user_id) == partition and user.user_id > after][:limit]


@dataclass(frozen=True, slots=True)
class MemoryCallCounts:
    """Implements CallCounts."""

    access: MemoryAccess

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int = 1) -> int:
        now = self.access.clock()
        before = self.access.admitted.get((user_id, endpoint), [])
        within = [time for time in before if time > now - rate.period_ms]
        over = len(within) + calls - rate.count
        if over > 0:
            return within[over - 1] + rate.period_ms - now if over <= len(within) else rate.period_ms
        self.access.admitted[user_id, endpoint] = within + [now] * calls
        return 0


@dataclass(frozen=True, slots=True)
class MemoryQuotaCounts:
    """Implements QuotaCounts; no day is forgotten."""

    access: MemoryAccess

    async def reserve(
        self, user_id: str, endpoint: str, day: Day, limit: int, calls: int = 1, rate: Rate | None = None
    ) -> Reserved:
        user = self.access.users_by_id.get(user_id)
        zone = user.time_zone if user is not None else "UTC"
        if zone != day.time_zone:
            return Reserved(time_zone=zone)
        counted, name = self.access.counted, (user_id, day.date, endpoint)
        if counted[name] + calls > limit:
            return Reserved(full=True)
        wait_ms = await self.access.calls.admit(user_id, endpoint, rate, calls) if rate is not None else 0
        if wait_ms:
            return Reserved(wait_ms=wait_ms)
        counted[name] += calls
        return Reserved()

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int = 1) -> None:
        name = (user_id, date, endpoint)
        self.access.counted[name] = max(0, self.access.counted[name] - calls)

    async def used(self, user_id: str, date: str) -> Mapping[str, int]:
        counted = self.access.counted.items()
        return {name[2]: count for name, count in counted if name[:2] == (user_id, date) and count}


@dataclass(frozen=True, slots=True)
class MemoryChanges:
    """Implements Changes; nothing is ever lost."""

    access: MemoryAccess

    async def subscribe(self, on_change: Callable[[str], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        self.access.listeners.append(on_change)
        return lambda: self.access.listeners.remove(on_change)
