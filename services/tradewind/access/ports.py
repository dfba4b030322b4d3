"""What the access service needs of the outside: a place for users and sessions, and word of their changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tradewind.access.domain.day import Day
from tradewind.access.domain.session import Draft, Session, User
from tradewind.server.access.roles import Role
from tradewind.server.rates import Rate


class Refusal(StrEnum):
    """Why a store did not do it."""

    UNKNOWN_USER = "unknown_user"
    OTHER_ROLE = "other_role"
    """The user is on record with a role that is not the one named."""
    TOO_MANY = "too_many"
    """The user has as many sessions as one may have."""
    UNKNOWN = "unknown"
    """There is no such session."""
    EXPIRED = "expired"
    """There was one, and its time is over."""


@dataclass(frozen=True, slots=True)
class Authorized:
    """Whose a token is, and the role that the user has now."""

    user_id: str
    role: Role
    session_id: str


class SessionStore(Protocol):
    """Sessions on record, by the digests of their tokens. Every change is atomic and is told to who listens."""

    async def open(self, digest: str, draft: Draft, role: Role | None = None) -> Session | Refusal:
        """Put a session on record; with `role` the user as well, where there is none.

        Refused when there is no such user, when the user has another role, and beyond MOST_SESSIONS that have not
        ended.
        """
        ...

    async def replace(self, old: str, new: str) -> Session | Refusal:
        """Put a session under a new digest in the place of an old one that has not ended, its times anew."""
        ...

    async def authorize(self, digest: str) -> Authorized | Refusal:
        """Return whose a token is, with the role the user has now, and note the time of use.

        A session that has ended stays on record as EXPIRED for REMEMBERED_MS, unless it is the oldest of more than
        MOST_SESSIONS such ones when the user opens another; one that was closed is UNKNOWN.
        """
        ...

    async def close(self, user_id: str, session_id: str) -> bool:
        """End a session of a user; say whether there was one."""
        ...

    async def close_all(self, user_id: str, keep: str = "") -> int:
        """End every session of a user but the one of the name `keep`; say how many."""
        ...

    async def list(self, user_id: str) -> Sequence[Session]:
        """Return the sessions of a user that have not ended, the newest first, then by digest."""
        ...


class UserStore(Protocol):
    """Users on record."""

    async def set(self, user_id: str, role: Role, time_zone: str = "") -> User:
        """Put a user on record, or change the role, which holds for open sessions as well, and the time zone if any."""
        ...

    async def find(self, user_id: str) -> User | None:
        """Return a user, None when not on record."""
        ...

    async def list(self, partition: int, after: str, limit: int) -> Sequence[User]:
        """Return at most `limit` users of a partition by id that come after `after`."""
        ...


class CallCounts(Protocol):
    """How many calls of a user to an endpoint were admitted lately."""

    async def admit(self, user_id: str, endpoint: str, rate: Rate, cost: int = 1) -> int:
        """Admit `cost` calls at once if no more than `rate` are then within its period; return 0.

        Otherwise nothing is counted, and returned is after how many ms they would be admitted if nothing else comes.
        The whole period is returned for more calls than ever are admitted at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reserved:
    """Whether calls were counted: they were unless one of these is in the way.

    `time_zone` is where the user's days begin, when that is not where the day named is one; the day is `full`; the rate
    would admit them after `wait_ms`.
    """

    time_zone: str = ""
    full: bool = False
    wait_ms: int = 0

    def __bool__(self) -> bool:
        return not (self.time_zone or self.full or self.wait_ms)


class QuotaCounts(Protocol):
    """How many calls of a user to an endpoint count for a day. A day is forgotten KEPT_MS after its end, or later."""

    async def reserve(
        self, user_id: str, endpoint: str, day: Day, most: int, calls: int = 1, rate: Rate | None = None
    ) -> Reserved:
        """Count calls if the day then has at most `most`; with `rate`, if it admits them as CallCounts does, for both.

        All of them are counted, or none; and none when the user's days begin in another time zone than the day's.
        """
        ...

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int = 1) -> None:
        """Count so many calls less for a day, though never less than none."""
        ...

    async def used(self, user_id: str, date: str) -> Mapping[str, int]:
        """Return how many calls count for a day, by endpoint, of those that have any."""
        ...


class Changes(Protocol):
    """Word of users of whom a session was closed or the role was changed."""

    async def subscribe(self, heard: Callable[[str], None], missed: Callable[[], None]) -> Callable[[], None]:
        """Have `heard` called with each such user, `missed` when some may have been lost; return what ends it."""
        ...


class Stores(Protocol):
    """What the access service keeps its data in."""

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def users(self) -> UserStore: ...

    @property
    def calls(self) -> CallCounts: ...

    @property
    def quotas(self) -> QuotaCounts: ...

    @property
    def changes(self) -> Changes: ...
