"""Who makes the call that is being served; None everywhere while access is off."""

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from tradewind.server.access.roles import Role
from tradewind.server.faults import PermissionDenied

_DEFAULT_USER = "default"
UNNAMED = ("", _DEFAULT_USER)
"""What clients send as a user's id when they name nobody; with access on, it means the caller."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller; `session_id` is empty for a server, and `digest` is that of the token."""

    user_id: str
    role: Role
    session_id: str = ""
    digest: str = ""


SERVICE = Identity("service", Role.SERVICE)
"""A server that has proved that it is one."""

_current: ContextVar[Identity | None] = ContextVar("tradewind_identity", default=None)


def current_identity() -> Identity | None:
    """Return who makes the current call; None while access is off."""
    return _current.get()


def set_identity(identity: Identity) -> None:
    """Set who makes the current call, in this context."""
    _current.set(identity)


def effective_user_id(user_id: str) -> str:
    """Return the user that a `user_id` in a request of the current call means.

    A user always means themselves, even when naming nobody; other callers mean whom they name. Raises PermissionDenied
    when a user names another user.
    """
    identity = current_identity()
    if identity is None or identity.role.sees_all:
        return user_id
    if user_id not in (*UNNAMED, identity.user_id):
        raise not_owner(identity)
    return identity.user_id


def request_owner() -> str:
    """Return the user whose request ids those of the current call are; `default` for callers other than users.

    With ids of their own, users cannot take those that another user will send.
    """
    identity = current_identity()
    return identity.user_id if identity is not None and identity.role is Role.USER else _DEFAULT_USER


def is_restricted() -> bool:
    """Say whether the caller may see and touch only their own things."""
    identity = current_identity()
    return identity is not None and identity.role is Role.USER


def require_own(owners: Iterable[str]) -> None:
    """Check that the caller may touch what belongs to `owners`. Raises PermissionDenied."""
    identity = current_identity()
    if identity is not None and identity.role is Role.USER and set(owners) - {identity.user_id}:
        raise not_owner(identity)


def not_owner(identity: Identity) -> PermissionDenied:
    """Return the refusal for something that another user owns; it does not name the owner."""
    return PermissionDenied(
        "NOT_OWNER",
        f'this does not belong to "{identity.user_id}": use a token of its owner, or ask an admin',
        {"user_id": identity.user_id},
    )
