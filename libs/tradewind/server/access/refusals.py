"""The refusals of calls whose token is not valid."""

from tradewind.server.faults import Unauthenticated

_MESSAGES = {
    "TOKEN_INVALID": "this token is not known: it was revoked or mistyped; log in, or ask for a new one",
    "TOKEN_EXPIRED": "this token has expired: log in again, or ask for a new one",
}


def refusal_for(reason: str) -> Unauthenticated:
    """Return the refusal for a reason, TOKEN_INVALID or TOKEN_EXPIRED."""
    return Unauthenticated(reason, _MESSAGES[reason])
