"""Users, and their sessions and tokens, as the access service knows them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tradewind.api.access.v1 import quota_pb2
from tradewind.api.access.v1 import session_pb2 as pb
from tradewind.client.wire import Members, moment


class Role(StrEnum):
    """What a caller may do: an admin may do all that an operator may, an operator all that a user may; a worker runs
    node tasks."""

    ADMIN = "admin"
    OPERATOR = "operator"
    USER = "user"
    WORKER = "worker"
    SERVICE = "service"
    UNKNOWN = "unknown"


class SessionKind(StrEnum):
    """How a session was made: by a login, or as a token for a program."""

    LOGIN = "login"
    TOKEN = "token"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user who may call; their days, for quotas, begin in `time_zone`, which is "" if it was not asked for."""

    user_id: str
    role: Role
    updated_at: datetime | None = None
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """How many calls of a method a user has made today, and the daily limit; the next day begins at `resets_at`."""

    endpoint: str
    used: int
    most: int
    date: str
    time_zone: str
    resets_at: datetime | None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session or token on record; `expires_at` is when it ends if it is not used before."""

    session_id: str
    user_id: str
    kind: SessionKind
    label: str
    created_at: datetime | None
    last_activity: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token, which is returned only this once, and its record. Printing this object does not show the token."""

    token: str
    session: SessionRecord

    def __repr__(self) -> str:
        return f"NewToken(token='...', session={self.session!r})"


_ROLES = Members(pb.Role, Role)
_KINDS = Members(pb.SessionKind, SessionKind)


def role_from(number: int) -> Role:
    """Return a role."""
    return _ROLES[number]


def user_from(message: pb.User) -> UserRecord:
    """Return a user."""
    return UserRecord(message.user_id, role_from(message.role), moment(message, "updated_at"), message.time_zone)


def quota_from(message: quota_pb2.Quota) -> QuotaRecord:
    """Return a quota."""
    return QuotaRecord(
        endpoint=message.endpoint,
        used=message.used,
        most=message.most,
        date=message.date,
        time_zone=message.time_zone,
        resets_at=moment(message, "resets_at"),
    )


def session_from(message: pb.Session) -> SessionRecord:
    """Return a session."""
    return SessionRecord(
        session_id=message.session_id,
        user_id=message.user_id,
        kind=_KINDS[message.kind],
        label=message.label,
        created_at=moment(message, "created_at"),
        last_activity=moment(message, "last_activity"),
        expires_at=moment(message, "expires_at"),
    )
