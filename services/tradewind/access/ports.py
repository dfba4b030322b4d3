"""What the access service needs from outside: stores for users and sessions, and news of their changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tradewind.access.domain.day import Day
from tradewind.access.domain.session import Session, SessionDraft, User
from tradewind.server.access.roles import Role
from tradewind.server.rates import Rate


class Refusal(StrEnum):
    """Why a store refused a request."""

    UNKNOWN_USER = "unknown_user"
    OTHER_ROLE = "other_role"
    """The user is on record with another role than the one named."""
    TOO_MANY = "too_many"
    """The user has as many sessions as a user may have."""
    UNKNOWN = "unknown"
    """There is no such session."""
    EXPIRED = "expired"
    """The session has ended because its time is over."""


@dataclass(frozen=True, slots=True)
class Authorized:
    """The user a token belongs to, and the user's present role."""

    user_id: str
    role: Role
    session_id: str


class SessionStore(Protocol):
    """Sessions on record, by the digests of their tokens. Every change is atomic, and `Changes` reports it."""

    async def open(self, digest: str, draft: SessionDraft, role: Role | None = None) -> Session | Refusal:
        """Put a session on record; with `role`, put the user on record as well if there is none.

        Refused when there is no such user, when the user has another role, and when the user has MAX_SESSIONS that
        have not ended.
        """
        ...

    async def replace(self, old: str, new: str) -> Session | Refusal:
        """Move a session that has not ended from the digest `old` to `new`; its times begin anew."""
        ...

    async def authorize(self, digest: str) -> Authorized | Refusal:
        """Return the user a token belongs to, with the user's present role, and note the time of use, if it can be.

        A session whose time is over stays on record as EXPIRED for REMEMBERED_MS. When the user opens another session,
        the oldest expired ones beyond MAX_SESSIONS are forgotten earlier. A session that was closed is UNKNOWN.
        """
        ...

    async def close(self, user_id: str, session_id: str) -> bool:
        """End a session of a user; return whether there was one."""
        ...

    async def close_all(self, user_id: str, keep: str = "") -> int:
        """End every session of a user except the one with the id `keep`; return how many ended."""
        ...

    async def list(self, user_id: str) -> Sequence[Session]:
        """Return the sessions of a user that have not ended, the newest first, then by digest."""
        ...


class UserStore(Protocol):
    """Users on record."""

    async def set(self, user_id: str, role: Role, time_zone: str = "") -> User:
        """Put a user on record, or change the role, for open sessions too, and the time zone unless it is empty."""
        ...

    async def find(self, user_id: str) -> User | None:
        """Return a user, None when not on record."""
        ...

    async def list(self, partition: int, after: str, limit: int) -> Sequence[User]:
        """Return up to `limit` users of a partition, in order of id, whose ids come after `after`."""
        ...


class CallCounts(Protocol):
    """How many recent calls of a user to an endpoint were admitted."""

    async def admit(self, user_id: str, endpoint: str, rate: Rate, calls: int = 1) -> int:
        """Admit `calls` calls at once and return 0, if the period of `rate` then has no more calls than it allows.

        Otherwise count nothing, and return after how many ms the calls would be admitted if no others come. For more
        calls than the rate ever admits at once, return the whole period.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reserved:
    """Whether calls were counted: true unless one of its fields says why not.

    `time_zone` is the user's own time zone, if the day was named for another one; `full` means that the day has no room
    for the calls; `wait_ms` is how long until the rate would admit them.
    """

    time_zone: str = ""
    full: bool = False
    wait_ms: int = 0

    def __bool__(self) -> bool:
        return not (self.time_zone or self.full or self.wait_ms)


class QuotaCounts(Protocol):
    """How many calls of a user to an endpoint count for a day. A day is forgotten KEPT_MS after its end, or later."""

    async def reserve(
        self, user_id: str, endpoint: str, day: Day, limit: int, calls: int = 1, rate: Rate | None = None
    ) -> Reserved:
        """Count calls for a day if it then has at most `limit`.

        With `rate`, its limit as in CallCounts must admit the calls too, and they then count for both. Either all of
        them are counted or none; none are when the user's time zone is not that of `day`.
        """
        ...

    async def refund(self, user_id: str, endpoint: str, date: str, calls: int = 1) -> None:
        """Take `calls` off the count of a day, which never falls below 0."""
        ...

    async def used(self, user_id: str, date: str) -> Mapping[str, int]:
        """Return how many calls count for a day, by endpoint; endpoints without any are left out."""
        ...


class Changes(Protocol):
    """News of users who had a session closed or their role changed."""

    async def subscribe(self, on_change: Callable[[str], None], on_gap: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` with each such user, `on_gap` when news may be lost; return a function that ends it."""
        ...


class Stores(Protocol):
    """The stores of the access service."""

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
