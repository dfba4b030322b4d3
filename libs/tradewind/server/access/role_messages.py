"""Maps roles to their numbers in messages and back."""

from tradewind.api.access.v1 import session_pb2
from tradewind.server.access.roles import Role

ROLE_MESSAGES = {
    Role.ADMIN: session_pb2.ROLE_ADMIN,
    Role.OPERATOR: session_pb2.ROLE_OPERATOR,
    Role.USER: session_pb2.ROLE_USER,
    Role.WORKER: session_pb2.ROLE_WORKER,
    Role.SERVICE: session_pb2.ROLE_SERVICE,
}
_ROLES: dict[int, Role] = {number: role for role, number in ROLE_MESSAGES.items()}


def role_of(number: int) -> Role:
    """Return the role for a number in a message. Raises KeyError for an unknown number."""
    return _ROLES[number]
