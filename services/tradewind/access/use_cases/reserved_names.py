"""The names that no user may have."""

from tradewind.server.faults import Violation

RESERVED = ("default", "service")
"""The name that clients send when they name no user, and that of the servers."""


def reserved_name(path: str, user_id: str) -> list[Violation]:
    """Return what is wrong with the name of a user who is to be put on record."""
    return [Violation(path, f'"{user_id}" is a reserved name; choose another one')] if user_id in RESERVED else []
