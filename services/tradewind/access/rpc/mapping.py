"""Protobuf on the outside, domain on the inside: users and sessions."""

from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.access.domain.session import Session, SessionKind, User
from tradewind.api.access.v1 import session_pb2
from tradewind.server.access.role_messages import ROLE_MESSAGES
from tradewind.server.access.tokens import session_id_of

_KIND = {
    SessionKind.LOGIN: session_pb2.SESSION_KIND_LOGIN,
    SessionKind.TOKEN: session_pb2.SESSION_KIND_TOKEN,
}


def user(record: User) -> session_pb2.User:
    """Return a user as a message."""
    return session_pb2.User(
        user_id=record.user_id, role=ROLE_MESSAGES[record.role], updated_at=timestamp(record.updated_at)
    )


def session(record: Session) -> session_pb2.Session:
    """Return a session as a message; its token's digest stays here."""
    return session_pb2.Session(
        session_id=session_id_of(record.digest),
        user_id=record.draft.user_id,
        kind=_KIND[record.draft.kind],
        label=record.draft.label,
        created_at=timestamp(record.created_at),
        last_activity=timestamp(record.last_activity),
        expires_at=timestamp(record.expires_at),
    )


def timestamp(ms: int) -> Timestamp:
    """Return epoch milliseconds as a Timestamp."""
    message = Timestamp()
    message.FromMilliseconds(ms)
    return message
