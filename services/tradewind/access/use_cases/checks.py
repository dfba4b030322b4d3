"""Checks of the names in requests."""

from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier

RESERVED = ("default", "service")
"""Names that no user may have: the one that clients send when they name no user, and that of the servers."""


def check_identifiers(**named: str) -> None:
    """Check identifiers. Raises InvalidInput with every fault."""
    faults = [fault for name, value in named.items() if (fault := check_identifier(name, value)) is not None]
    if faults:
        raise InvalidInput(faults)


def reserved_name(path: str, user_id: str) -> list[Violation]:
    """Return what is wrong with the name of a user who is to be put on record."""
    return [Violation(path, f'"{user_id}" is a reserved name; choose another one')] if user_id in RESERVED else []
