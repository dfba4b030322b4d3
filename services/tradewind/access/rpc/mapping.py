"""Maps users, quotas and sessions from the domain to Protobuf."""

from collections.abc import Iterable, Mapping

from tradewind.access.domain.day import Day
from tradewind.access.domain.session import Session, SessionKind, User
from tradewind.api.access.v1 import quota_pb2, session_pb2
from tradewind.server.access.role_messages import ROLE_MESSAGES
from tradewind.server.access.tokens import session_id_of
from tradewind.server.timestamps import timestamp

_KIND = {SessionKind.LOGIN: session_pb2.SESSION_KIND_LOGIN, SessionKind.TOKEN: session_pb2.SESSION_KIND_TOKEN}


def user(record: User) -> session_pb2.User:
    """Return a user as a message."""
    return session_pb2.User(
        user_id=record.user_id,
        role=ROLE_MESSAGES[record.role],
        updated_at=timestamp(record.updated_at),
        time_zone=record.time_zone,
    )


def quotas(day: Day, used: Mapping[str, tuple[int, int]]) -> Iterable[quota_pb2.Quota]:
    """Yield for each endpoint how many calls of a user's day are used, and how many are allowed."""
    for endpoint, (count, limit) in used.items():
        yield quota_pb2.Quota(
            endpoint=endpoint,
            used=count,
            most=limit,
            date=day.date,
            time_zone=day.time_zone,
            resets_at=timestamp(day.ends_at),
        )


def session(record: Session) -> session_pb2.Session:
    """Return a session as a message, without the digest of its token."""
    return session_pb2.Session(
        session_id=session_id_of(record.digest),
        user_id=record.draft.user_id,
        kind=_KIND[record.draft.kind],
        label=record.draft.label,
        created_at=timestamp(record.created_at),
        last_activity=timestamp(record.last_activity),
        expires_at=timestamp(record.expires_at),
    )
