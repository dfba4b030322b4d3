"""Who makes the call that is served here; None everywhere while access is off."""

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from tradewind.server.access.roles import Role
from tradewind.server.faults import PermissionDenied

UNNAMED = ("", "default")
"""What clients send as a user's id when they name nobody; with access on, the caller is meant."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who calls; `session_id` is empty for a server, `digest` is that of the token."""

    user_id: str
    role: Role
    session_id: str = ""
    digest: str = ""


SERVICE = Identity("service", Role.SERVICE)
"""A server, which has shown what only servers have."""

_current: ContextVar[Identity | None] = ContextVar("tradewind_identity", default=None)


def current_identity() -> Identity | None:
    """Return who makes the call under way, None while access is off."""
    return _current.get()


def set_identity(identity: Identity) -> None:
    """Say who makes the call under way in this context."""
    _current.set(identity)


def user_meant(user_id: str) -> str:
    """Return whose things are meant by a `user_id` in a request of the call under way.

    A user means their own, and whoever names nobody theirs; everybody else whom they name. Raises PermissionDenied when
    a user names another one.
    """
    identity = current_identity()
    if identity is None:
        return user_id
    if identity.role.sees_all:
        return user_id
    if user_id not in (*UNNAMED, identity.user_id):
        raise not_owner(identity)
    return identity.user_id


def is_restricted() -> bool:
    """Say whether the caller may see and touch what is theirs only."""
    identity = current_identity()
    return identity is not None and identity.role is Role.USER


def require_own(owners: Iterable[str]) -> None:
    """Check that the caller may touch what belongs to `owners`. Raises PermissionDenied."""
    identity = current_identity()
    if identity is None or identity.role is not Role.USER:
        return
    if set(owners) - {identity.user_id}:
        raise not_owner(identity)


def not_owner(identity: Identity) -> PermissionDenied:
    """Return the refusal for what is another user's; the other one is not named."""
    return PermissionDenied(
        "NOT_OWNER",
        f'this belongs to another user than "{identity.user_id}": use a token of its owner, or of an operator',
        {"user_id": identity.user_id},
    )
