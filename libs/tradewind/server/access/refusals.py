"""What a caller hears when a token is not good."""

from tradewind.server.faults import Unauthenticated

_SENTENCES = {
    "TOKEN_INVALID": "this token is not known: it was revoked or is mistyped; log in, or have another one made",
    "TOKEN_EXPIRED": "this token's time is over: log in again, or have another one made",
}


def refused(reason: str) -> Unauthenticated:
    """Return the refusal for a reason, TOKEN_INVALID or TOKEN_EXPIRED."""
    return Unauthenticated(reason, _SENTENCES[reason])
